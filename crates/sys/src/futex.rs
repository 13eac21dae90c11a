//! futex(2) on a word in shared memory.

use std::io;
use std::sync::atomic::AtomicU32;

/// Sleeps while the word holds `expected`; returns at once when it does not.
///
/// # Errors
/// EINTR on a signal.
#[inline]
pub fn wait(word: &AtomicU32, expected: u32) -> io::Result<()> {
    // SAFETY: the word is a live, aligned u32; no timeout. Not PRIVATE: two processes share it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            std::ptr::null::<libc::timespec>(),
        )
    };
    if result == -1 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EAGAIN) { Ok(()) } else { Err(error) }
    } else {
        Ok(())
    }
}

/// Wakes one sleeper.
#[inline]
pub fn wake_one(word: &AtomicU32) -> io::Result<()> {
    // SAFETY: the word is a live, aligned u32.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
