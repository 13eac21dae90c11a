//! io_uring(7): one send or receive at a time, on one ring.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};

/// A ring for one thread that has one operation in flight.
pub struct SingleOpRing {
    ring: IoUring,
}

impl std::fmt::Debug for SingleOpRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl SingleOpRing {
    /// io_uring_setup(2) with eight entries.
    pub fn new() -> io::Result<Self> {
        Ok(Self { ring: IoUring::new(8)? })
    }

    /// Whether a completion waits to be taken.
    #[inline]
    fn complete(&mut self) -> Option<io::Result<usize>> {
        let entry = self.ring.completion().next()?;
        let result = entry.result();
        Some(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
    }

    /// Sends, waiting for the completion in the same call.
    #[inline]
    pub fn send(&mut self, fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(types::Fd(fd.as_raw_fd()), bytes.as_ptr(), len)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        // SAFETY: `bytes` outlives the operation: this function returns only after its completion.
        unsafe { self.ring.submission().push(&entry) }.map_err(busy)?;
        self.finish(true, &mut || Ok(()))
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
        let entry = opcode::Recv::new(types::Fd(fd.as_raw_fd()), buffer.as_mut_ptr(), len).build();
        // SAFETY: `buffer` outlives the operation: `finish` returns only after its completion,
        // and cancels it first when it gives up.
        unsafe { self.ring.submission().push(&entry) }.map_err(busy)?;
        self.finish(sleep, on_interrupt)
    }

    #[inline]
    fn finish(
        &mut self,
        sleep: bool,
        on_interrupt: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<usize> {
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
                Err(error) => return Err(error),
            }
            if let Some(result) = self.complete() {
                return result;
            }
            if let Err(error) = on_interrupt() {
                self.cancel()?;
                return Err(error);
            }
            std::hint::spin_loop();
        }
    }

    /// Cancels the operation in flight and takes both completions.
    fn cancel(&mut self) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(0).build();
        // SAFETY: a cancellation refers to no memory.
        unsafe { self.ring.submission().push(&entry) }.map_err(busy)?;
        self.ring.submit_and_wait(2)?;
        while self.complete().is_some() {}
        Ok(())
    }
}

fn busy<E>(_: E) -> io::Error {
    io::Error::from_raw_os_error(libc::EBUSY)
}
