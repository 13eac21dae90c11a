//! POSIX and System V message queues, and futex(2).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use crate::{check, check_len, owned};

/// mq_open(3) of a new queue, unlinked at once: it lives as long as its descriptors.
///
/// On Linux a queue descriptor is a file descriptor (mq_overview(7)).
pub fn posix_queue(name: &CStr, messages_max: i64, message_size: i64) -> io::Result<OwnedFd> {
    // SAFETY: a mq_attr is plain numbers.
    let mut attributes: libc::mq_attr = unsafe { std::mem::zeroed() };
    attributes.mq_maxmsg = messages_max;
    attributes.mq_msgsize = message_size;
    // SAFETY: `name` is a C string and `attributes` is valid; mode is passed as a full int.
    let fd = check(unsafe {
        libc::mq_open(
            name.as_ptr(),
            libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC,
            0o600 as libc::c_uint,
            &raw mut attributes,
        )
    })?;
    let queue = owned(fd.into())?;
    // SAFETY: `name` is a C string.
    check(unsafe { libc::mq_unlink(name.as_ptr()) })?;
    Ok(queue)
}

/// mq_send(3) at priority 0.
#[inline]
pub fn posix_send(queue: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    // SAFETY: `message` is readable for its length.
    check(unsafe { libc::mq_send(queue.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) })?;
    Ok(())
}

/// mq_receive(3); `buffer` must have room for the queue's message size.
#[inline]
pub fn posix_receive(queue: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buffer` is writable for its length; the priority is not asked for.
    check_len(unsafe {
        libc::mq_receive(
            queue.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            std::ptr::null_mut(),
        )
    })
}

/// msgget(2) of a new queue with a given key.
///
/// # Errors
/// EEXIST when the key is taken.
pub fn sysv_create(key: i32) -> io::Result<i32> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::msgget(key, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) })
}

/// msgctl(2) IPC_RMID.
pub fn sysv_remove(queue: i32) -> io::Result<()> {
    // SAFETY: removing needs no buffer.
    check(unsafe { libc::msgctl(queue, libc::IPC_RMID, std::ptr::null_mut()) })?;
    Ok(())
}

/// A System V message: the type that the kernel wants before the text, then the text.
#[derive(Debug)]
pub struct SysvMessage {
    // u64 elements, so that the type at the front is aligned.
    words: Vec<u64>,
    capacity: usize,
}

impl SysvMessage {
    /// Room for a text of `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        let mut words = vec![0; 1 + capacity.div_ceil(8)];
        words[0] = 1;
        Self { words, capacity }
    }

    fn text(&mut self) -> *mut u8 {
        self.words[1..].as_mut_ptr().cast()
    }

    /// msgsnd(2) of `text`, blocking while the queue is full.
    #[inline]
    pub fn send(&mut self, queue: i32, text: &[u8]) -> io::Result<()> {
        assert!(text.len() <= self.capacity, "text within the room made for it");
        let target = self.text();
        // SAFETY: room for `capacity` bytes after the type; a slice cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), target, text.len()) };
        // SAFETY: a type followed by `text.len()` readable bytes.
        check(unsafe { libc::msgsnd(queue, self.words.as_ptr().cast(), text.len(), 0) })?;
        Ok(())
    }

    /// msgrcv(2) into `buffer`; `wait` false returns ENOMSG when the queue is empty.
    #[inline]
    pub fn receive(&mut self, queue: i32, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        let flags = if wait { 0 } else { libc::IPC_NOWAIT };
        // SAFETY: a type followed by room for `capacity` bytes.
        let len = check_len(unsafe {
            libc::msgrcv(queue, self.words.as_mut_ptr().cast(), self.capacity, 0, flags)
        })?;
        let kept = len.min(buffer.len());
        let source = self.text();
        // SAFETY: the kernel wrote `len` bytes there; a slice cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(source, buffer.as_mut_ptr(), kept) };
        Ok(len)
    }
}

/// Sleeps while the word holds `expected`; returns at once when it does not.
///
/// # Errors
/// EINTR on a signal.
#[inline]
pub fn futex_wait(word: &AtomicU32, expected: u32) -> io::Result<()> {
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
pub fn futex_wake_one(word: &AtomicU32) -> io::Result<()> {
    // SAFETY: the word is a live, aligned u32.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
