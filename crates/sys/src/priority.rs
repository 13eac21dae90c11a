//! The scheduling weight of a thread, its nice value, and real-time priority above all weights.

use std::io;

use crate::check;

/// The least nice value, and so the greatest weight, that there is.
pub const LEAST_NICE: i32 = -20;

/// The calling thread's nice value, −20 to 19: getpriority(2), which Linux answers for one thread.
pub fn nice() -> i32 {
    // SAFETY: takes plain numbers; 0 is the calling thread, which exists, so −1 is a value.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Gives the calling thread, and none but it, a nice value: setpriority(2).
///
/// # Errors
/// EACCES for less than RLIMIT_NICE allows, without CAP_SYS_NICE in the first user namespace.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: takes plain numbers; 0 is the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) })?;
    Ok(())
}

/// The least nice value that RLIMIT_NICE allows to everybody: getrlimit(2), which counts from 20 down.
pub fn nice_allowed() -> io::Result<i32> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid to write.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NICE, &raw mut limit) })?;
    let steps = i32::try_from(limit.rlim_cur.min(40)).unwrap_or(40);
    Ok((20 - steps).clamp(LEAST_NICE, 19))
}

/// Gives the calling thread, and what it starts from now on, this real-time priority: sched_setscheduler(2)
/// with SCHED_FIFO. It runs before every thread without, until it waits.
///
/// # Errors
/// EPERM for more than RLIMIT_RTPRIO allows, without CAP_SYS_NICE in the first user namespace.
pub fn set_real_time(priority: i32) -> io::Result<()> {
    // SAFETY: a sched_param is plain numbers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: `parameters` is readable; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nice_value_is_of_the_thread_that_asked_and_of_what_it_was_set_to() {
        let before = nice();
        let set = std::thread::spawn(move || {
            set_nice((before + 1).min(19)).unwrap();
            nice()
        });
        assert_eq!(set.join().unwrap(), (before + 1).min(19));
        assert_eq!(nice(), before, "another thread's is its own");
        assert!((LEAST_NICE..=19).contains(&nice_allowed().unwrap()));
    }
}
