//! Real-time signals with a value, stop requests, and whom the terminal listens to.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::check;

/// The real-time signal used as a message.
fn message_signal() -> libc::c_int {
    libc::SIGRTMIN() + 3
}

fn message_set() -> libc::sigset_t {
    // SAFETY: a sigset_t is plain bits.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: `set` is valid and the signal number is within the real-time range.
    unsafe { libc::sigaddset(&raw mut set, message_signal()) };
    set
}

/// Blocks the message signal so that it queues until waited for.
pub fn block_message_signal() -> io::Result<()> {
    let set = message_set();
    // SAFETY: `set` is valid; the old mask is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) })?;
    Ok(())
}

/// sigqueue(3) of the message signal with a value.
#[inline]
pub fn queue_message(pid: u32, value: u64) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let address = usize::try_from(value).unwrap_or(usize::MAX);
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(address) };
    // SAFETY: takes plain values; the kernel checks the target.
    check(unsafe { libc::sigqueue(pid, message_signal(), value) })?;
    Ok(())
}

/// sigwaitinfo(2) for the message signal; its value.
///
/// # Errors
/// EINTR when another signal was handled first.
#[inline]
pub fn wait_message() -> io::Result<u64> {
    let set = message_set();
    // SAFETY: a siginfo_t is plain data.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` and `info` are valid.
    check(unsafe { libc::sigwaitinfo(&raw const set, &raw mut info) })?;
    // SAFETY: the signal was sent by sigqueue, so the value is present.
    let value = unsafe { info.si_value() };
    Ok(value.sival_ptr.addr() as u64)
}

static STOP_REQUESTS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_stop(_signal: libc::c_int) {
    STOP_REQUESTS.fetch_add(1, Ordering::Relaxed);
}

/// Counts SIGINT, SIGTERM and SIGHUP instead of dying of them; blocking calls return EINTR.
pub fn count_stop_requests() -> io::Result<()> {
    handle(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP], on_stop)
}

/// Stop requests counted so far.
pub fn stop_requests() -> u32 {
    STOP_REQUESTS.load(Ordering::Relaxed)
}

extern "C" fn on_file_limit(_signal: libc::c_int) {}

/// Makes a write beyond RLIMIT_FSIZE fail with EFBIG instead of ending the process (setrlimit(2)).
///
/// By a handler that does nothing: unlike ignoring the signal, it is not inherited by programs that are started.
/// Where it is ignored already it stays so.
pub fn handle_file_size_limit() -> io::Result<()> {
    // SAFETY: a sigaction is plain data, about to be filled in.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks without setting; `old` is valid to write.
    check(unsafe { libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &raw mut old) })?;
    if old.sa_sigaction == libc::SIG_IGN {
        return Ok(());
    }
    handle(&[libc::SIGXFSZ], on_file_limit)
}

static STATUS_REQUESTS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_status(_signal: libc::c_int) {
    STATUS_REQUESTS.fetch_add(1, Ordering::Relaxed);
}

/// Counts SIGUSR1 instead of dying of it; blocking calls return EINTR.
pub fn count_status_requests() -> io::Result<()> {
    handle(&[libc::SIGUSR1], on_status)
}

/// Requests for the state of things counted so far.
pub fn status_requests() -> u32 {
    STATUS_REQUESTS.load(Ordering::Relaxed)
}

/// Counts the keyboard's SIGINT and SIGQUIT instead of dying of them; unlike ignoring them, this is
/// not inherited by programs that are started.
pub fn count_keyboard_requests() -> io::Result<()> {
    handle(&[libc::SIGINT, libc::SIGQUIT], on_stop)
}

/// Whom signals are passed on to; 0 is nobody yet.
static FORWARD_TARGET: AtomicU32 = AtomicU32::new(0);
/// Signals that are still to be passed on: a bit each, by number.
static PENDING: AtomicU32 = AtomicU32::new(0);

/// errno as it was, for the code that a handler interrupts between a call and its look at errno.
struct SavedErrno(libc::c_int);

impl SavedErrno {
    fn save() -> Self {
        let place = errno_place();
        // SAFETY: the place is this thread's own and valid as long as the thread.
        Self(unsafe { *place })
    }
}

impl Drop for SavedErrno {
    fn drop(&mut self) {
        let place = errno_place();
        // SAFETY: the place is this thread's own and valid as long as the thread.
        unsafe { *place = self.0 };
    }
}

/// Where this thread's errno is.
fn errno_place() -> *mut libc::c_int {
    // SAFETY: it has no preconditions.
    unsafe { libc::__errno_location() }
}

/// Passes on what is pending, where there is somebody. Only atomics and kill(2), as a handler may.
///
/// Whoever adds a signal calls it afterwards, and so does whoever names an heir: none is lost between them.
fn forward_pending() {
    let Ok(heir @ 1..) = libc::pid_t::try_from(FORWARD_TARGET.load(Ordering::SeqCst)) else {
        return;
    };
    let pending = PENDING.swap(0, Ordering::SeqCst);
    for signal in (1..32).filter(|signal| pending & (1 << signal) != 0) {
        // SAFETY: takes plain numbers.
        unsafe { libc::kill(heir, signal) };
    }
}

fn add_pending(signal: libc::c_int) {
    PENDING.fetch_or(1_u32.checked_shl(signal.unsigned_abs()).unwrap_or(0), Ordering::SeqCst);
    forward_pending();
}

extern "C" fn on_forwarded_signal(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    let _errno = SavedErrno::save();
    // SAFETY: the kernel gives a valid siginfo_t to a handler that asked for one.
    let code = unsafe { (*info).si_code };
    // A signal from the keyboard (SI_KERNEL) was sent to the whole process group.
    if matches!(signal, libc::SIGINT | libc::SIGQUIT) && code == libc::SI_KERNEL {
        return;
    }
    add_pending(signal);
}

/// Passes on what asks a process to end or to report (SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1,
/// SIGUSR2) to the process that [`set_forward_target`] names, instead of dying of it; what the keyboard sends
/// everybody has been sent. Waiting calls go on.
pub fn forward_signals() -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
        on_forwarded_signal;
    let signals =
        [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];
    install(&signals, handler as libc::sighandler_t, libc::SA_SIGINFO | libc::SA_RESTART)
}

/// Who gets the signals that are passed on, and those that came before; 0 for nobody.
pub fn set_forward_target(pid: u32) {
    FORWARD_TARGET.store(pid, Ordering::SeqCst);
    forward_pending();
}

/// Sends SIGTERM to whom signals are passed on, as soon as there is somebody.
pub fn terminate_forward_target() {
    add_pending(libc::SIGTERM);
}

/// Without SA_RESTART: a call that waits returns EINTR.
pub(crate) fn handle(
    signals: &[libc::c_int],
    handler: extern "C" fn(libc::c_int),
) -> io::Result<()> {
    install(signals, handler as libc::sighandler_t, 0)
}

fn install(
    signals: &[libc::c_int],
    handler: libc::sighandler_t,
    flags: libc::c_int,
) -> io::Result<()> {
    // SAFETY: a sigaction is plain data; all zeroes means no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    for &signal in signals {
        // SAFETY: each handler of this crate uses atomics and kill alone, which are async-signal-safe, and saves errno
        // around kill.
        check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) })?;
    }
    Ok(())
}

/// Makes this process's group the one that the terminal behind a descriptor listens to, though
/// another group has it now.
///
/// Ignores SIGTTOU from here on, which would stop a process of the background for asking.
///
/// # Errors
/// ENOTTY when it is not the terminal of this session.
pub fn set_foreground_group(terminal: BorrowedFd<'_>) -> io::Result<()> {
    install(&[libc::SIGTTOU], libc::SIG_IGN, 0)?;
    // SAFETY: takes no arguments and cannot fail.
    let group = unsafe { libc::getpgrp() };
    // SAFETY: the descriptor is open.
    check(unsafe { libc::tcsetpgrp(terminal.as_raw_fd(), group) })?;
    Ok(())
}

/// Ignores the keyboard's interrupt, so that only the orchestrator decides what it means.
pub fn ignore_keyboard_interrupt() -> io::Result<()> {
    install(&[libc::SIGINT], libc::SIG_IGN, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a shell that is started ignores a signal. Of others, what another test sets at the same time.
    fn is_ignored_by_a_child(signal: libc::c_int) -> bool {
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", "grep SigIgn /proc/$$/status"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let ignored = u64::from_str_radix(text.split_whitespace().nth(1).unwrap(), 16).unwrap();
        ignored >> (signal - 1) & 1 == 1
    }

    #[test]
    fn a_handler_that_fails_to_pass_a_signal_on_keeps_errno() {
        forward_signals().unwrap();
        // No process: kill fails with ESRCH.
        set_forward_target(i32::MAX.unsigned_abs());
        let place = errno_place();
        // SAFETY: the location is this thread's own.
        unsafe { *place = libc::ENOTEMPTY };
        // SAFETY: SIGUSR2 is handled.
        let raised = unsafe { libc::raise(libc::SIGUSR2) };
        let left = io::Error::last_os_error().raw_os_error();
        set_forward_target(0);
        assert_eq!((raised, left), (0, Some(libc::ENOTEMPTY)));
        assert_eq!(PENDING.load(Ordering::SeqCst), 0, "it was tried");
    }

    #[test]
    fn programs_that_are_started_die_of_the_file_limit_as_ever() {
        let before = is_ignored_by_a_child(libc::SIGXFSZ);
        handle_file_size_limit().unwrap();
        assert_eq!(is_ignored_by_a_child(libc::SIGXFSZ), before);
    }
}
