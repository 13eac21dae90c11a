//! io_uring(7): one send or receive at a time, on one ring.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

/// Marks the completion of an operation, and that of its cancellation.
const OPERATION: u64 = 1;
const CANCELLATION: u64 = 2;

/// A ring for one thread that has one operation in flight.
///
/// A buffer is borrowed from the call until the kernel has completed the operation: no call returns earlier, whatever
/// fails.
///
/// ```compile_fail,E0502
/// # use std::os::fd::AsFd;
/// # let mut ring = plumb_sys::uring::SingleOpRing::new().unwrap();
/// # let (reader, _writer) = plumb_sys::fd::pipe().unwrap();
/// let mut buffer = [0; 8];
/// let first = &buffer[0];
/// ring.receive(reader.as_fd(), &mut buffer, true, &mut || Ok(())).unwrap();
/// assert_eq!(*first, 0);
/// ```
pub struct SingleOpRing {
    ring: IoUring,
    /// An operation was refused and still waits to be submitted, which must never happen.
    is_blocked: bool,
}

impl std::fmt::Debug for SingleOpRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SingleOpRing").finish_non_exhaustive()
    }
}

impl SingleOpRing {
    /// io_uring_setup(2) with eight entries.
    pub fn new() -> io::Result<Self> {
        Ok(Self { ring: IoUring::new(8)?, is_blocked: false })
    }

    /// The result of the operation, once its completion is there.
    #[inline]
    fn complete(&mut self) -> Option<io::Result<usize>> {
        self.ring.completion().find(|entry| entry.user_data() == OPERATION).map(|entry| {
            let result = entry.result();
            usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
        })
    }

    /// Sends, waiting for the completion in the same call.
    #[inline]
    pub fn send(&mut self, fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(types::Fd(fd.as_raw_fd()), bytes.as_ptr(), len)
            .flags(libc::MSG_NOSIGNAL)
            .build()
            .user_data(OPERATION);
        // SAFETY: `bytes` is borrowed until this returns, which is after the completion.
        unsafe { self.perform(&entry, true, &mut || Ok(())) }
    }

    /// Receives; `sleep` waits in the kernel, otherwise the completion queue is watched.
    ///
    /// `on_interrupt` is asked after a signal, and now and then while watching; its error cancels.
    #[inline]
    pub fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        buffer: &mut [u8],
        sleep: bool,
        on_interrupt: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<usize> {
        let len = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let entry = opcode::Recv::new(types::Fd(fd.as_raw_fd()), buffer.as_mut_ptr(), len)
            .build()
            .user_data(OPERATION);
        // SAFETY: `buffer` is borrowed until this returns, which is after the completion.
        unsafe { self.perform(&entry, sleep, on_interrupt) }
    }

    /// Submits an operation; returns when the kernel has completed it, or has not taken it and never will.
    ///
    /// # Safety
    /// What the operation refers to is valid until this returns.
    #[inline]
    unsafe fn perform(
        &mut self,
        entry: &squeue::Entry,
        sleep: bool,
        on_interrupt: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<usize> {
        if self.is_blocked {
            return Err(busy(()));
        }
        // SAFETY: as this function requires; every return below is after the completion, or blocks the ring.
        unsafe { self.ring.submission().push(entry) }.map_err(busy)?;
        let mut pending = true;
        loop {
            let result = if sleep {
                self.ring.submit_and_wait(1)
            } else if pending {
                self.ring.submit()
            } else {
                Ok(0)
            };
            match result {
                Ok(_) => pending = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if !self.ring.submission().is_empty() => {
                    self.is_blocked = true;
                    return Err(error);
                }
                Err(error) => {
                    self.cancel();
                    return Err(error);
                }
            }
            if let Some(result) = self.complete() {
                return result;
            }
            if let Err(error) = on_interrupt() {
                self.cancel();
                return Err(error);
            }
            std::hint::spin_loop();
        }
    }

    /// Cancels the operation in flight, and waits until the kernel has completed both.
    fn cancel(&mut self) {
        let entry = opcode::AsyncCancel::new(OPERATION).build().user_data(CANCELLATION);
        // SAFETY: a cancellation refers to no memory.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // One of eight entries is in use at most; without a cancellation the operation ends by itself.
        let mut left = 1 + usize::from(pushed.is_ok());
        loop {
            left -= self.ring.completion().count().min(left);
            if left == 0 {
                return;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_transient(&error) => {}
                // The caller would free a buffer that the kernel may write.
                Err(_) => std::process::abort(),
            }
        }
    }
}

/// Whether io_uring_enter(2) may succeed when it is called again.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

fn busy<E>(_: E) -> io::Error {
    io::Error::from_raw_os_error(libc::EBUSY)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_receive_that_is_given_up_takes_nothing_that_comes_later() {
        let Ok(mut ring) = SingleOpRing::new() else {
            return println!("skipped: this kernel or its policy has no io_uring");
        };
        let (near, far) = UnixStream::pair().unwrap();
        crate::signal::handle(&[libc::SIGUSR1], ignore).unwrap();
        // SAFETY: takes nothing.
        let waiting = unsafe { libc::pthread_self() };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // To this thread: the kernel would give a signal for the process to any other one.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // SAFETY: the thread outlives this scope.
                    assert_eq!(unsafe { libc::pthread_kill(waiting, libc::SIGUSR1) }, 0);
                    crate::timer::sleep_ns(1_000_000);
                }
            });
            let _over = SetWhenDropped(&is_over);
            for sleep in [false, true] {
                let mut buffer = [0; 4];
                let give_up = &mut || Err(io::ErrorKind::TimedOut.into());
                let error = ring.receive(near.as_fd(), &mut buffer, sleep, give_up).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                assert_eq!(ring.send(far.as_fd(), b"late").unwrap(), 4);
                assert_eq!(buffer, [0; 4]);
                let go_on = &mut || Ok(());
                assert_eq!(ring.receive(near.as_fd(), &mut buffer, sleep, go_on).unwrap(), 4);
                assert_eq!(&buffer, b"late");
            }
        });
    }

    extern "C" fn ignore(_signal: libc::c_int) {}

    struct SetWhenDropped<'a>(&'a AtomicBool);

    impl Drop for SetWhenDropped<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
