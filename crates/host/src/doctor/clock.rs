//! Whether time can be read cheaply and truly.
//!
//! Left out: how fine and how dear each clock is, which is measured in every run.

use super::{Check, Question};
use crate::environment::tree::Tree;

const SOURCES: &str = "sys/devices/system/clocksource/clocksource0";

pub(super) fn examine(tree: &Tree) -> Vec<Check> {
    vec![counter(tree, plumb_sys::clock::ticks_usable()), source(tree)]
}

/// The processor's counter: constant, never stopping, and not rejected by the kernel.
fn counter(tree: &Tree, usable: bool) -> Check {
    let question = Question { id: "clock.tsc", what: "time-stamp counter" };
    let why = "samples are timed with CLOCK_MONOTONIC_RAW instead, whose read costs more, so short \
               operations are batched more";
    if !usable {
        return Check::limited(
            question,
            "not constant, not non-stop, or without rdtscp",
            why,
            "nothing can on this processor; in a virtual machine, its owner can pass the counter \
             through (QEMU: -cpu host,+invtsc)",
        );
    }
    let available = tree.text(&format!("{SOURCES}/available_clocksource")).unwrap_or_default();
    let name = if cfg!(target_arch = "aarch64") { "arch_sys_counter" } else { "tsc" };
    if !available.is_empty() && !available.split_whitespace().any(|source| source == name) {
        return Check::limited(
            question,
            format!("the kernel rejected it as a clock source (it offers {available})"),
            "it was found to drift or to differ between CPUs: figures taken with it can be wrong",
            "sudo dmesg | grep -i -e tsc -e clocksource   (says why; a firmware update may mend it)",
        );
    }
    Check::ok(question, "constant and non-stop")
}

/// The kernel's clock: whether clock_gettime stays in user space.
fn source(tree: &Tree) -> Check {
    let question = Question { id: "clock.source", what: "kernel clock source" };
    // These have a vDSO reader: x86 tsc, kvm-clock and Hyper-V pages; Arm's and RISC-V's counters.
    let fast = [
        "tsc",
        "kvm-clock",
        "hyperv_clocksource_tsc_page",
        "arch_sys_counter",
        "riscv_clocksource",
    ];
    match tree.text(&format!("{SOURCES}/current_clocksource")) {
        Ok(source) if fast.contains(&source.as_str()) => Check::ok(question, source),
        Ok(source) => {
            let available = tree.text(&format!("{SOURCES}/available_clocksource"));
            let better = available.unwrap_or_default();
            let better = better.split_whitespace().find(|source| fast.contains(source));
            let fix = better.map_or_else(
                || "nothing can: the kernel offers no better one".to_owned(),
                |better| format!("echo {better} | sudo tee /{SOURCES}/current_clocksource"),
            );
            Check::limited(
                question,
                source,
                "every clock_gettime is a system call, in plumb and in what it is compared with",
                fix,
            )
        }
        Err(missing) => Check::limited(
            question,
            missing.to_string(),
            "it cannot be told how the kernel reads its clock",
            "nothing can, unless /sys is hidden on purpose: mount it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;
    use crate::environment::fixture::Fixture;

    #[test]
    fn a_slow_source_is_told_with_the_better_one() {
        let fixture = Fixture::new()
            .file(&format!("{SOURCES}/current_clocksource"), "hpet\n")
            .file(&format!("{SOURCES}/available_clocksource"), "hpet tsc acpi_pm\n");
        let check = source(&fixture.tree());
        assert_eq!(check.status, Status::Limited);
        assert!(check.fix.starts_with("echo tsc | sudo tee /sys/"), "{}", check.fix);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_counter_that_the_kernel_rejected_is_not_trusted() {
        let fixture =
            Fixture::new().file(&format!("{SOURCES}/available_clocksource"), "hpet acpi_pm");
        assert_eq!(counter(&fixture.tree(), true).status, Status::Limited);
        assert_eq!(counter(&fixture.tree(), false).status, Status::Limited);
        assert_eq!(counter(&Fixture::new().tree(), true).status, Status::Ok);
    }
}
