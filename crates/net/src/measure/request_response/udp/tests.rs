//! Requests and responses in datagrams over loopback and a relay, without a session around them.

use plumb_base::stats::histogram::Histogram;

use super::*;
use crate::measure::request_response::relay;
use plumb_clock::sleep_until;

const TOKEN: TestToken = TestToken([7; 16]);

fn spec(pacing: RequestPacing, duration_ns: u64) -> RequestSpec {
    RequestSpec {
        request_bytes: 64,
        response_bytes: 64,
        pacing,
        warm_up_ns: 20_000_000,
        duration_ns,
    }
}

/// The result of asking through a relay, and of answering behind it.
fn through(
    each_way_ns: u64,
    swallows: impl Fn(&[u8]) -> bool + Send + 'static,
    spec: &RequestSpec,
    is_over: &dyn Fn(u64) -> bool,
) -> (RequesterReport, ResponderReport) {
    let agent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let relay = relay::DelayingUdpRelay::before(agent.local_addr().unwrap(), each_way_ns, swallows);
    agent.connect(relay.outer).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(relay.address).unwrap();
    thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let bounds = ResponderBounds { bytes_per_second: None, is_over: &|| false };
            respond(&agent, &TOKEN, spec, bounds)
        });
        let progress = Counter::default();
        let report = send_requests(&socket, &TOKEN, spec, &progress, &|| is_over(progress.get()));
        send_end(&socket, &TOKEN);
        (report.unwrap(), answering.join().unwrap())
    })
}

fn number(bytes: &[u8]) -> Option<u32> {
    let header = TestDatagramHeader::read(&TOKEN, bytes)
        .filter(|header| header.kind == TestDatagramKind::Data);
    header.map(|header| header.sequence)
}

#[test]
fn a_request_that_is_lost_delays_no_other() {
    let spec = spec(RequestPacing::Open { per_second: 200 }, 500_000_000);
    let swallows = |bytes: &[u8]| number(bytes).is_some_and(|number| number % 10 == 3);
    let (report, answered) = through(0, swallows, &spec, &|_| false);
    // Of 104, the first four are of the warm-up.
    assert_eq!((report.due, report.answered, report.lost), (100, 90, 10), "{report:?}");
    assert_eq!((answered.answered, report.cpu_requests), (93, 93));
    let latency = Histogram::decode(&report.latency).unwrap();
    assert_eq!(latency.len(), 90);
    assert_eq!(Histogram::decode(&report.lateness).unwrap().len(), 100);
    // Had each waited for those before it, most would have waited for a lost one.
    let waited = latency.quantile(0.5);
    assert!(waited < UNKNOWN_NS / 4, "half of them took {waited} ns or more");
}

#[test]
fn what_is_under_way_when_a_test_is_ended_early_is_not_lost() {
    let spec = spec(RequestPacing::Open { per_second: 100 }, 60_000_000_000);
    let (report, _) = through(100_000_000, |_| false, &spec, &|answered| answered >= 10);
    assert!(report.answered >= 8 && report.due < 6_000, "{report:?}");
    assert_eq!((report.lost, report.due), (0, report.answered), "{report:?}");
    assert!(report.counted_ns < spec.duration_ns, "{report:?}");
}

#[test]
fn a_path_of_more_than_a_second_that_loses_nothing_shows_no_loss() {
    let spec = spec(RequestPacing::Closed, 3_000_000_000);
    let (report, answered) = through(600_000_000, |_| false, &spec, &|_| false);
    assert!(report.answered >= 1, "{report:?}");
    assert_eq!((report.lost, report.answered), (0, report.due), "{report:?}");
    let latency = Histogram::decode(&report.latency).unwrap();
    assert!(latency.min() >= 1_190_000_000, "{} ns", latency.min());
    assert!(answered.answered >= report.answered, "{answered:?}");
}

#[test]
fn responses_to_other_requests_prolong_no_wait() {
    let spec = RequestSpec { warm_up_ns: 0, ..spec(RequestPacing::Closed, 1_000_000) };
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(peer.local_addr().unwrap()).unwrap();
    peer.connect(socket.local_addr().unwrap()).unwrap();
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    // In a fiftieth of the patience each, ten times as long as that.
    let most = 500;
    thread::scope(|scope| {
        scope.spawn(|| {
            let stale = TestDatagramHeader::of(TestDatagramKind::Data, 0, 0, 0).to_bytes(&TOKEN);
            while !is_over.load(Ordering::Relaxed) && sent.load(Ordering::Relaxed) < most {
                peer.send(&stale).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
                sleep_until(monotonic_ns() + UNKNOWN_NS / 50);
            }
        });
        let report = send_requests(&socket, &TOKEN, &spec, &Counter::default(), &|| false);
        is_over.store(true, Ordering::Relaxed);
        let report = report.unwrap();
        assert_eq!((report.due, report.lost), (1, 1), "{report:?}");
    });
    assert!(sent.load(Ordering::Relaxed) < most, "it waited as long as anything came");
}

#[test]
fn of_those_that_were_given_up_the_last_are_known_each_once() {
    let mut overdue = OverdueRequests::default();
    (0..100).for_each(|number| overdue.note(number, u64::from(number) + 7));
    assert_eq!((overdue.take(35), overdue.take(36)), (None, Some(43)));
    assert_eq!((overdue.take(36), overdue.take(99)), (None, Some(106)));
    assert_eq!(overdue.requests.len(), OVERDUE_MAX - 2);
}

#[test]
fn patience_follows_what_came_also_late_between_its_bounds() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut patience = ResponseTimeout::begin(&socket).unwrap();
    patience.on_lost();
    assert_eq!(patience.ns, UNKNOWN_NS, "nothing is known yet");
    patience.on_response(1_000);
    patience.on_lost();
    assert_eq!(patience.ns, MIN_NS);
    patience.on_late_response(1_200_000_000);
    assert_eq!(patience.ns, 4_800_000_000);
    patience.on_late_response(60_000_000_000);
    assert_eq!(patience.ns, MAX_NS);
    patience.restore().unwrap();
    assert_eq!(socket.read_timeout().unwrap(), Some(Duration::from_nanos(MAX_NS)));
    assert!(!patience.wait_remaining(0).unwrap(), "its time was over long ago");
    assert!(patience.wait_remaining(monotonic_ns()).unwrap());
}
