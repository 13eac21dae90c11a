//! Links that change while they run.

use super::*;
use crate::context::Reason;

fn set(rig: &mut Rig, now: Instant, text: &str) {
    rig.link.set(now, &text.parse().unwrap(), &mut rig.pool).unwrap();
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
    assert_eq!(report.directions[0].discards.of(Reason::Full).0, 3);
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
    let error = rig.link.set(rig.start, &two, &mut rig.pool).unwrap_err();
    assert!(error.to_string().contains("has 1 hops and cannot get 2"));
    assert_eq!(rig.link.spec(), &"rate=1mbit".parse().unwrap());
}
