use super::*;
use crate::document::advise::ChattyConnection;

const MS: u64 = 1_000_000;

/// A conversation of segments, captured at a point that is so far from both ends.
struct Script {
    turns: CaptureTurns,
    now: u64,
    next: [u32; 2],
}

impl Script {
    /// Opens a connection: `far` of the round trip lies on the server's side, `near` on the client's.
    fn open(far: u64, near: u64) -> Self {
        let mut script = Self { turns: CaptureTurns::default(), now: 0, next: [100, 900] };
        script.put(0, 0, |segment| (segment.is_syn, segment.ack) = (true, None));
        script.next[0] += 1;
        script.put(1, far, |segment| segment.is_syn = true);
        script.next[1] += 1;
        script.put(0, near, |_| ());
        script
    }

    fn put(&mut self, side: usize, after: u64, change: impl Fn(&mut SegmentRecord<'_>)) {
        self.now += after;
        let ends: [SocketAddr; 2] =
            ["10.0.0.1:4000".parse().unwrap(), "10.0.0.2:80".parse().unwrap()];
        let mut segment = SegmentRecord {
            time_ns: self.now,
            source: ends[side],
            destination: ends[1 - side],
            seq: self.next[side],
            ack: Some(self.next[1 - side]),
            is_syn: false,
            is_fin: false,
            is_reset: false,
            len: 0,
            head: &[],
        };
        change(&mut segment);
        self.turns.take(&segment);
        self.next[side] = segment.seq.wrapping_add(segment.len);
    }

    fn data(&mut self, side: usize, after: u64, len: u32) {
        self.put(side, after, |segment| segment.len = len);
    }

    fn finish(self) -> ChattyConnection {
        let change = AssumedChange { near_rtt_ns: MS, batch: 5 };
        self.turns.finish("a.pcapng", change, Vec::new()).connections.remove(0)
    }
}

fn saved(found: &ChattyConnection, change: &str) -> Option<u64> {
    found.savings.iter().find(|saving| saving.change == change).map(|saving| saving.saved_ns)
}

#[test]
fn requests_that_wait_are_dependent_round_trips() {
    let mut script = Script::open(40 * MS, 0);
    for _ in 0..10 {
        script.data(0, 2 * MS, 50);
        script.data(1, 43 * MS, 500);
    }
    let found = script.finish();
    assert_eq!((found.round_trips, found.turns, found.overlapped_turns), (10, 19, 0));
    assert_eq!((found.waiting_ns, found.thinking_ns), (430 * MS, 18 * MS));
    assert_eq!((found.server_rtt_ns, found.client_rtt_ns), (Some(40 * MS), Some(0)));
    assert_eq!(found.captured_at, "client");
    assert_eq!(saved(&found, "pipelining"), Some(9 * 40 * MS));
    assert_eq!(saved(&found, "batching"), Some(8 * 40 * MS));
    assert_eq!(saved(&found, "moving-closer"), Some(10 * 39 * MS));
    assert_eq!((found.stalls, found.retransmissions, found.missing_bytes), (0, 0, 0));
}

#[test]
fn the_point_of_capture_changes_no_saving() {
    let mut at_server = Script::open(0, 40 * MS);
    for index in 0..10 {
        at_server.data(0, if index == 0 { 2 * MS } else { 42 * MS }, 50);
        at_server.data(1, 3 * MS, 500);
    }
    let found = at_server.finish();
    assert_eq!((found.round_trips, found.captured_at.as_str()), (10, "server"));
    assert_eq!(saved(&found, "pipelining"), Some(9 * 40 * MS));
}

#[test]
fn pipelined_requests_are_one_round_trip() {
    let mut script = Script::open(40 * MS, 0);
    for _ in 0..10 {
        script.data(0, 0, 50);
    }
    script.put(1, 40 * MS, |segment| segment.len = 500);
    // A request that had been sent before that response came, as its acknowledgment shows.
    let before = script.next[1] - 500;
    script.put(0, 0, |segment| (segment.len, segment.ack) = (50, Some(before)));
    script.data(1, MS, 500);
    let found = script.finish();
    assert_eq!((found.round_trips, found.overlapped_turns), (1, 1));
    assert_eq!(saved(&found, "pipelining"), Some(0));
}

#[test]
fn a_small_segment_held_for_an_acknowledgment_is_a_stall() {
    let mut script = Script::open(10 * MS, 0);
    for _ in 0..3 {
        script.data(0, MS, 50);
        script.put(1, 50 * MS, |_| ());
        script.data(0, 0, 50);
        script.data(1, 10 * MS, 100);
    }
    let found = script.finish();
    assert_eq!((found.stalls, found.stalled_ns), (3, 150 * MS));
    assert_eq!(saved(&found, "no-delay"), Some(150 * MS));
    assert_eq!(found.round_trips, 3);
}

#[test]
fn the_last_part_of_a_response_can_be_held_for_the_first() {
    let mut script = Script::open(40 * MS, 0);
    for _ in 0..3 {
        script.data(0, MS, 50);
        script.data(1, 40 * MS, 100);
        script.data(1, 0, 1_448);
        script.put(0, 0, |_| ());
        script.data(1, 40 * MS, 700);
    }
    let found = script.finish();
    assert_eq!((found.stalls, found.stalled_ns), (3, 120 * MS));
    assert_eq!(found.round_trips, 3);
}

#[test]
fn what_is_sent_long_after_an_acknowledgment_was_not_held() {
    let mut script = Script::open(40 * MS, 0);
    for _ in 0..3 {
        script.data(0, 100 * MS, 50);
        script.put(1, 40 * MS, |_| ());
    }
    assert_eq!(script.finish().stalls, 0);
}

#[test]
fn data_sent_again_is_no_turn() {
    let mut script = Script::open(40 * MS, 0);
    script.data(0, 0, 50);
    script.put(0, 200 * MS, |segment| (segment.seq, segment.len) = (segment.seq - 50, 50));
    script.data(1, 40 * MS, 500);
    let found = script.finish();
    assert_eq!((found.retransmissions, found.turns, found.client_bytes), (1, 1, 50));
}

#[test]
fn what_the_capture_lost_is_counted() {
    let mut script = Script::open(40 * MS, 0);
    script.data(0, 0, 50);
    script.put(1, 40 * MS, |segment| (segment.seq, segment.len) = (segment.seq + 1_000, 500));
    assert_eq!(script.finish().missing_bytes, 1_000);
}

#[test]
fn what_was_lost_before_the_capture_and_sent_again_is_not_missing() {
    // Of 300 bytes that did not pass, 100 in the middle come, and then all.
    for (fills, missing) in [(1, 200), (2, 0)] {
        let mut script = Script::open(40 * MS, 0);
        script.data(0, 0, 50);
        script.put(0, MS, |segment| (segment.seq, segment.len) = (segment.seq + 300, 100));
        script.put(0, MS, |segment| (segment.seq, segment.len) = (segment.seq - 300, 100));
        if fills == 2 {
            script.put(0, MS, |segment| (segment.seq, segment.len) = (segment.seq - 200, 300));
        }
        let found = script.finish();
        assert_eq!((found.missing_bytes, found.client_bytes), (missing, 450 - missing));
        assert_eq!(found.retransmissions, fills);
    }
}

#[test]
fn one_direction_gives_no_round_trips_and_no_savings() {
    let mut turns = CaptureTurns::default();
    for index in 0..5_u32 {
        turns.take(&SegmentRecord {
            time_ns: u64::from(index) * MS,
            source: "[::1]:1".parse().unwrap(),
            destination: "[::1]:2".parse().unwrap(),
            seq: index * 10,
            ack: Some(7),
            is_syn: false,
            is_fin: false,
            is_reset: false,
            len: 10,
            head: b"GET / ",
        });
    }
    let document = turns.finish("a", AssumedChange { near_rtt_ns: 0, batch: 1 }, Vec::new());
    let found = &document.connections[0];
    assert!(found.is_one_way && found.is_client_guessed && found.savings.is_empty());
    assert_eq!((found.round_trips, found.protocol.as_deref()), (0, Some("http/1")));
    assert!(document.notes.iter().any(|note| note.contains("one direction")));
}

#[test]
fn any_segments_in_any_order_are_survived() {
    let mut state = 1_u64;
    let mut random = move || {
        // Knuth's multiplier (MMIX); the upper half is random enough.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    };
    let mut turns = CaptureTurns::default();
    for _ in 0..200_000 {
        let bits = random();
        let word = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap();
        let end = |value: u64| SocketAddr::from(([10, 0, 0, 1], u16::try_from(value % 3).unwrap()));
        turns.take(&SegmentRecord {
            time_ns: random() << (bits % 30),
            source: end(random()),
            destination: end(random()),
            seq: word(random()),
            ack: (bits & 1 != 0).then(|| word(random())),
            is_syn: bits & 0b1110 == 0,
            is_fin: bits & 0b11_0000 == 0,
            is_reset: bits & 0b1_1100_0000 == 0,
            len: word(random()) >> (bits % 32),
            head: &[],
        });
    }
    turns.finish("a", AssumedChange { near_rtt_ns: 0, batch: 0 }, Vec::new());
}
