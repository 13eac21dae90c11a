//! Precedence over other threads for whoever drives a link: a greater scheduling weight.
//!
//! It needs no CPU more, only the right to be next: a driver that wakes for a frame does not wait until
//! the program that sent it has had its share. Left out: CPUs of one's own (`crate::lab::Seats`), and
//! real-time scheduling, with which a driver that spins would stop the machine.

use plumb_sys::priority;

/// Gives this thread, and none but it, the greatest weight that this user may: nice −20 for root, what
/// RLIMIT_NICE allows for others. Where that is refused, it stays what it was; lateness then shows it.
///
/// Linux weighs threads within a group only: sessions where autogroups are switched on (sched(7)), and
/// control groups. Against threads of other groups it changes nothing.
pub fn take_precedence() {
    if priority::set_nice(priority::LEAST_NICE).is_ok() {
        return;
    }
    let allowed = priority::nice_allowed().ok().filter(|&allowed| allowed < priority::nice());
    allowed.and_then(|allowed| priority::set_nice(allowed).ok());
}

/// This thread's nice value.
pub(super) fn nice() -> i32 {
    priority::nice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precedence_is_taken_by_one_thread_and_never_makes_it_lighter() {
        let before = nice();
        let after = std::thread::spawn(|| {
            take_precedence();
            nice()
        });
        let after = after.join().unwrap();
        assert!(after <= before, "{before} to {after}");
        assert_eq!(nice(), before);
    }
}
