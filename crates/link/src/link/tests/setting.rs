//! Links that change while they run.

use super::*;
use crate::frame::DiscardReason;

fn set(rig: &mut Rig, now: Instant, text: &str) {
    rig.link.reconfigure(now, &text.parse().unwrap(), &mut rig.pool).unwrap();
    assert_eq!(rig.violations(now), []);
}

#[test]
fn what_is_left_of_a_frame_goes_at_the_new_rate() {
    let mut rig = Rig::new("rate=1mbit,delay=5ms");
    rig.send(rig.start, NEAR, &numbered(1, 1_250));
    rig.send(rig.start, NEAR, &numbered(2, 1_250));
    let now = rig.start + Span::from_ms(4);
    set(&mut rig, now, "rate=2mbit,delay=5ms");
    // 4 ms at 1 Mb/s leave 6,000 bits: 3 ms at twice the rate; then 5 ms for the second one.
    assert_eq!(rig.spans(Span::from_secs(1), FAR), [12, 17].map(Span::from_ms));
    assert_eq!(rig.violations(rig.start + Span::from_secs(1)), []);
}

#[test]
fn a_rate_that_is_taken_away_lets_go_at_once() {
    let mut rig = Rig::new("rate=1200bit");
    for number in 0..3 {
        rig.send(rig.start, NEAR, &numbered(number, 1_250));
    }
    let now = rig.start + Span::from_ms(4);
    set(&mut rig, now, "plain");
    assert_eq!(rig.link.deadline(), Some(now));
    assert_eq!(rig.spans(Span::from_secs(1), FAR), [4; 3].map(Span::from_ms));
}

#[test]
fn a_queue_that_shrinks_drops_from_its_end_and_one_of_another_kind_takes_the_rest() {
    let mut rig = Rig::new("rate=1mbit,limit=10packets");
    for number in 0..8 {
        rig.send(rig.start, NEAR, &numbered(number, 1_250));
    }
    let now = rig.start + Span::from_ms(5);
    set(&mut rig, now, "rate=1mbit,limit=4packets");
    set(&mut rig, now, "rate=1mbit,queue=codel,limit=4packets");
    let received = rig.receive(rig.start + Span::from_secs(1), FAR);
    let numbers: Vec<_> = received.iter().map(|(_, bytes)| number(bytes)).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4], "one was being sent, four fitted");
    let report = rig.link.report(rig.start + Span::from_secs(1));
    assert_eq!(report.directions[0].discards.of(DiscardReason::Full).0, 3);
    assert_eq!(report.violations, []);
}

#[test]
fn a_shorter_delay_overtakes_nobody_unless_it_may() {
    for (overtake, expected) in [("", [50, 50]), (",overtake=yes", [15, 50])] {
        let mut rig = Rig::new(&format!("delay=50ms{overtake}"));
        rig.send(rig.start, NEAR, &numbered(1, 100));
        let now = rig.start + Span::from_ms(5);
        set(&mut rig, now, &format!("delay=10ms{overtake}"));
        rig.send(now, NEAR, &numbered(2, 100));
        assert_eq!(rig.spans(Span::from_secs(1), FAR), expected.map(Span::from_ms));
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut rig = Rig::new("rate=1mbit");
    let two = "rate=1mbit;delay=5ms".parse().unwrap();
    let error = rig.link.reconfigure(rig.start, &two, &mut rig.pool).unwrap_err();
    assert!(error.to_string().contains("has 1 hops and cannot get 2"));
    let other = "seed=7;rate=2mbit".parse().unwrap();
    let error = rig.link.reconfigure(rig.start, &other, &mut rig.pool).unwrap_err();
    assert!(error.to_string().contains("seed 0 for as long as it runs"), "{error}");
    assert_eq!(rig.link.spec(), &"rate=1mbit".parse().unwrap());
}

/// Sends a frame every 100 ms, changes the link every 750 ms as `change` says for its how many-th time, and
/// says which frames came through in `secs` seconds.
fn survivors(rig: &mut Rig, secs: u64, change: impl Fn(u64) -> String) -> Vec<u32> {
    for ms in (0..secs * 1_000).step_by(50) {
        let now = rig.start + Span::from_ms(ms);
        if ms > 0 && ms.is_multiple_of(750) {
            let text = change(ms / 750);
            set(rig, now, &text);
        }
        if ms.is_multiple_of(100) {
            rig.send(now, NEAR, &numbered(u32::try_from(ms / 100).unwrap(), 100));
        }
    }
    let later = rig.start + Span::from_secs(secs + 10);
    rig.receive(later, FAR).iter().map(|(_, bytes)| number(bytes)).collect()
}

#[test]
fn a_window_keeps_to_the_links_start_whatever_else_changes() {
    let mut rig = Rig::new("blackout=2s/1s");
    let passed = survivors(&mut rig, 10, |n| format!("blackout=2s/1s,loss=0.{n:09}1"));
    let lit: Vec<u32> = (0..100).filter(|tenth| tenth % 20 < 10).collect();
    assert_eq!(passed, lit);
    // Its own length may change, and its beginning is still the link's.
    let mut rig = Rig::new("clog=2s/500ms,blackout=2s/1s");
    let passed = survivors(&mut rig, 10, |n| format!("blackout=2s/{}ms", 1_000 + n % 2));
    assert_eq!(passed, lit);
}

#[test]
fn frames_are_counted_on_through_changes() {
    let mut rig = Rig::new("lose-every=10,lose=2/95");
    let passed = survivors(&mut rig, 10, |n| format!("lose=2/95,lose-every=10,loss=0.{n:09}1"));
    // Every tenth, and of all the second and the 95th.
    let lost: Vec<u32> = (0..100).filter(|number| !passed.contains(number)).collect();
    assert_eq!(lost.len(), 11, "{lost:?}");
    assert!(lost.contains(&1) && lost.contains(&9) && lost.contains(&19), "{lost:?}");
}

#[test]
fn draws_go_on_through_changes_and_never_begin_again() {
    let mut rig = Rig::new("loss=50%");
    let (mut passed, frames) = (0, 200_u32);
    for number in 0..frames {
        let now = rig.start + Span::from_ms(number.into());
        // Of its kind, or there again after it was not.
        if number.is_multiple_of(2) {
            set(&mut rig, now, "plain");
        }
        set(&mut rig, now, &format!("loss=0.5{number:05}"));
        rig.send(now, NEAR, &numbered(number, 100));
        passed += rig.receive(now, FAR).len();
    }
    assert!((60..140).contains(&passed), "{passed} of {frames}");

    let mut rig = Rig::new("delay=10ms..20ms,overtake=yes");
    let mut delays = std::collections::BTreeSet::new();
    for number in 0..50_u32 {
        let now = rig.start + Span::from_secs(number.into());
        set(&mut rig, now, &format!("delay=10ms..20.{number:03}ms,overtake=yes"));
        rig.send(now, NEAR, &numbered(number, 100));
        let came = rig.receive(now + Span::from_ms(900), FAR);
        delays.insert(came[0].0 - now);
    }
    assert!(delays.len() > 45, "{} delays of 50 differ", delays.len());
}

#[test]
fn a_burst_goes_on_through_a_change_of_its_shares() {
    // In the bad state from the first frame on, for ever.
    let mut rig = Rig::new("gilbert-elliott=1/0");
    let passed = survivors(&mut rig, 3, |n| format!("gilbert-elliott=0/0/0/0.99999999{n}"));
    assert_eq!(passed, [0]);
}

const QUEUES: [&str; 9] =
    ["codel", "pie", "red", "fq-codel", "drr", "csfq", "red-pd", "priority", "drop-tail"];

#[test]
fn a_queue_that_gets_another_limit_knows_what_it_knew() {
    for queue in QUEUES {
        let text = |down: u64| {
            // The limit follows the delay there and back, and never binds.
            format!("rate=1mbit,queue={queue},limit=500bdp,delay=20ms|delay={down}ms")
        };
        let run = |changes: bool| {
            let mut rig = Rig::new(&text(20));
            let mut out = Vec::new();
            for ms in 0..2_000 {
                let now = rig.start + Span::from_ms(ms);
                if changes && ms.is_multiple_of(50) {
                    set(&mut rig, now, &text(20 + ms / 50 % 2));
                }
                rig.send(now, NEAR, &numbered(u32::try_from(ms).unwrap(), 160));
                out.extend(rig.receive(now, FAR));
            }
            out.extend(rig.receive(rig.start + Span::from_secs(60), FAR));
            (out, rig.link.report(rig.start + Span::from_secs(60)).violations)
        };
        let ((steady, none), (changed, still_none)) = (run(false), run(true));
        assert_eq!((none, still_none), (Vec::new(), Vec::new()));
        assert_eq!(steady.len(), changed.len(), "{queue}");
        assert_eq!(steady, changed, "{queue}");
    }
}

#[test]
fn a_smaller_limit_holds_at_once_for_every_queue() {
    for queue in QUEUES {
        let text = |limit| format!("rate=1mbit,queue={queue},limit={limit}packets");
        let mut rig = Rig::new(&text(100));
        for number in 0..50 {
            rig.send(rig.start, NEAR, &numbered(number, 1_000));
        }
        let now = rig.start + Span::from_ms(1);
        set(&mut rig, now, &text(5));
        let waiting = rig.link.report(now).directions[0].waiting.frames;
        assert!((1..=5).contains(&waiting), "{queue}: {waiting}");
    }
}

#[test]
fn pauses_keep_to_the_links_start() {
    let mut rig = Rig::new("rate=1mbit,on=1s,off=1s");
    let start = rig.start;
    set(&mut rig, start + Span::from_ms(500), "rate=2mbit,on=1s,off=1s");
    rig.send(start + Span::from_ms(1_200), NEAR, &numbered(1, 1_250));
    assert_eq!(rig.spans(Span::from_secs(5), FAR), [Span::from_ms(2_005)]);
}
