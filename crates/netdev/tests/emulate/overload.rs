//! Missed deadlines are told when, and only when, there were any: quiet, frozen, and starved.
//!
//! Each in a process of its own, which is this program once more. Whoever receives is an independent
//! witness: a frame that the driver calls late cannot have been in time there.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use plumb_base::time::{Instant, Span};
use plumb_clock::{InstantClock, Stopwatch};
use plumb_netdev::emulator::{EmulatorOptions, TimerPrecision};
use plumb_netdev::lab::TestBed;
use plumb_sys::timer::sleep_ns;

use crate::bed::{can_make_beds, start};

/// Says to this program that it is the one in trouble.
const ROLE: &str = "PLUMB_TEST_TROUBLE";
/// As the link's text has it: long enough that some frames are on their way at any moment.
const DELAY: Span = Span::from_ms(5);
const DATAGRAMS: u64 = 800;
/// Frames that are handed over at a time, at the most.
const BATCH: u64 = 16;

/// The last output of the process under test.
#[derive(Debug)]
struct LatenessFigures {
    missed: u64,
    missed_worst_us: u64,
    absences: u64,
    absence_worst_us: u64,
    entered_late: u64,
    waited_us: u64,
    /// Frames that the witness saw late by more than the tolerance.
    seen_late: u64,
    /// How often its threads were taken from their CPUs.
    preemptions: u64,
}

/// The process that is in trouble; does nothing when it runs as one of the tests.
#[test]
fn the_one_in_trouble() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let precision = if role == "starved" {
        TimerPrecision::Busy
    } else {
        TimerPrecision::Hybrid { spin: None }
    };
    let options = EmulatorOptions { precision, ..EmulatorOptions::default() };
    let running = start("delay=5ms", options).unwrap();
    let (a, b) = running.pair(TestBed::NEAR_V4.into(), TestBed::FAR_V4.into());
    let timeline = InstantClock::begin(Stopwatch::new(None));
    let over = AtomicBool::new(false);
    let mut delays = Vec::new();
    std::thread::scope(|scope| {
        if role == "starved" {
            for _ in 0..2 * std::thread::available_parallelism().unwrap().get() {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
        }
        scope.spawn(|| {
            println!("ready");
            for _ in 0..DATAGRAMS {
                let now = timeline.now().since_origin().as_ps();
                a.send(&now.to_le_bytes()).unwrap();
                sleep_ns(1_000_000);
            }
        });
        for _ in 0..DATAGRAMS {
            let mut sent = [0; 8];
            // signal(7): being stopped and continued ends a call with a time limit.
            while let Err(error) = b.recv(&mut sent) {
                assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
            }
            let sent = Instant::ORIGIN + Span::from_ps(u64::from_le_bytes(sent));
            delays.push(timeline.now() - sent);
        }
        over.store(true, Ordering::Relaxed);
    });
    let report = running.stop().report;
    let told = report.timing;
    let late = delays.iter().filter(|delay| **delay > DELAY + told.tolerance).count();
    let us = |span: Span| span.as_ns() / 1_000;
    println!(
        "told {} {} {} {} {} {} {late} {}",
        told.missed.count,
        us(told.missed.worst),
        told.stalls.count,
        us(told.stalls.worst),
        told.entered_late,
        us(told.waited_for_cpu.unwrap_or(Span::from_secs(1))),
        preemptions(),
    );
}

/// How often this process was taken from a CPU (getrusage(2)).
fn preemptions() -> u64 {
    plumb_sys::process::usage().unwrap().switches_involuntary
}

/// Runs it, does something to it when it is ready, and listens.
fn run(role: &str, trouble: impl FnOnce(&Child)) -> Option<LatenessFigures> {
    if !can_make_beds() {
        return None;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "overload::the_one_in_trouble", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("ready")), "{role} begins");
    trouble(&child);
    let told = lines.find_map(|line| line.strip_prefix("told ").map(str::to_owned));
    assert!(child.wait().unwrap().success());
    let told = told.unwrap();
    let numbers: Vec<u64> = told.split(' ').map(|number| number.parse().unwrap()).collect();
    let told = LatenessFigures {
        missed: numbers[0],
        missed_worst_us: numbers[1],
        absences: numbers[2],
        absence_worst_us: numbers[3],
        entered_late: numbers[4],
        waited_us: numbers[5],
        seen_late: numbers[6],
        preemptions: numbers[7],
    };
    println!("{role}: {told:?}");
    // Of a batch in whose handing over the driver was preempted it cannot know which frames had left.
    let unknown = BATCH * (1 + told.preemptions);
    assert!(
        told.missed <= told.seen_late + unknown,
        "no frame is called late that came in time: {told:?}"
    );
    Some(told)
}

#[test]
fn what_was_in_time_is_not_called_late() {
    run("quiet", |_| {});
}

/// Whether every thread of a process is stopped (proc_pid_stat(5)).
fn is_stopped(child: &Child) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().flatten();
    let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat"));
    tasks
        .filter_map(|task| stat(task).ok())
        .all(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 'Z'])))
}

#[test]
fn a_process_that_was_frozen_for_a_tenth_of_a_second_says_so() {
    let signal = |child: &Child, name: &str| {
        let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    };
    let told = run("frozen", |child| {
        sleep_ns(200_000_000);
        signal(child, "-STOP");
        // The thread that takes the signal stops the others; until it gets a CPU they keep running.
        while !is_stopped(child) {
            sleep_ns(1_000_000);
        }
        sleep_ns(100_000_000);
        signal(child, "-CONT");
    });
    let Some(told) = told else { return };
    // A sleep of ten milliseconds, and no more, may hide in an absence.
    assert!(told.absences > 0 && told.absence_worst_us >= 89_000, "{told:?}");
    assert!(told.missed > 0 && told.missed_worst_us >= 94_000, "{told:?}");
}

#[test]
fn a_driver_that_got_no_cpu_says_so() {
    let Some(told) = run("starved", |_| {}) else { return };
    assert!(told.missed > 0 && told.absences > 0, "{told:?}");
    // The sender goes on meanwhile, and the driver finds its frames when it is back.
    assert!(told.entered_late > 0 && told.waited_us > 10_000, "{told:?}");
}
