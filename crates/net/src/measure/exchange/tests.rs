//! Requests and responses over loopback, without a session around them.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use plumb_base::stats::histogram::Histogram;

use super::*;

fn spec(pacing: Pacing) -> ExchangeSpec {
    ExchangeSpec {
        request_bytes: 100,
        response_bytes: 1_000,
        pacing,
        warm_up_ns: 20_000_000,
        duration_ns: 100_000_000,
    }
}

fn ask(stream: &TcpStream, spec: &ExchangeSpec) -> Result<ExchangeReport, ExchangeError> {
    let progress = Progress::default();
    match spec.pacing {
        Pacing::Open { per_second } => open::ask(stream, spec, per_second, &progress),
        Pacing::Closed | Pacing::Connect => ask_in_turn(&mut &*stream, spec, &progress),
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
    }
    (near, far)
}

type Asked = Result<ExchangeReport, ExchangeError>;

fn with_answers(
    spec: &ExchangeSpec,
    ask: impl FnOnce(&TcpStream) -> Asked,
) -> (Asked, io::Result<u64>) {
    let (near, far) = pair();
    thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let mut answered = 0;
            let bounds = Bounds::until(steady_ns() + 60_000_000_000);
            answer_in_turn(&mut &far, spec, bounds, &mut answered).map(|()| answered)
        });
        let report = ask(&near);
        near.shutdown(Shutdown::Write).unwrap();
        (report, answering.join().unwrap())
    })
}

fn decoded(histogram: &[u8]) -> Histogram {
    Histogram::decode(histogram).unwrap()
}

#[test]
fn at_closed_loop_every_request_is_answered_and_timed() {
    let spec = spec(Pacing::Closed);
    let (report, answered) = with_answers(&spec, |stream| ask(stream, &spec));
    let report = report.unwrap();
    assert!(report.answered > 0 && report.answered == report.due);
    assert!(answered.unwrap() >= report.answered, "the warm-up is answered but not counted");
    let latency = decoded(&report.latency);
    assert_eq!(latency.len(), report.answered);
    // One after another: together they cannot take longer than the time that counted.
    assert!(latency.min() * report.answered <= report.counted_ns);
    assert!(report.cpu_ns > 0 && report.cpu_requests == report.answered);
    assert!(report.lateness.is_empty());
}

#[test]
fn at_open_loop_as_many_are_sent_as_are_due() {
    let spec = spec(Pacing::Open { per_second: 2_000 });
    let (report, answered) = with_answers(&spec, |stream| ask(stream, &spec));
    let report = report.unwrap();
    assert_eq!((report.due, report.answered), (200, 200));
    assert_eq!(answered.unwrap(), 240);
    assert_eq!(decoded(&report.lateness).len(), 200);
    let in_turn = |stream: &TcpStream| ask_in_turn(&mut &*stream, &spec, &Progress::default());
    let (report, answered) = with_answers(&spec, in_turn);
    let report = report.unwrap();
    assert_eq!((report.due, report.answered), (200, 200));
    assert_eq!(answered.unwrap(), 240);
    assert_eq!(decoded(&report.lateness).len(), 200);
}

#[test]
fn a_stall_counts_for_every_request_that_it_held_up() {
    let spec = ExchangeSpec { warm_up_ns: 0, ..spec(Pacing::Open { per_second: 1_000 }) };
    let stall_ns = 60_000_000;
    for in_turn in [false, true] {
        let (near, mut far) = pair();
        let report = thread::scope(|scope| {
            scope.spawn(move || {
                let mut request = [0; 100];
                for index in 0..100 {
                    far.read_exact(&mut request).unwrap();
                    if index == 20 {
                        sleep_until(steady_ns() + stall_ns);
                    }
                    far.write_all(&[0; 1_000]).unwrap();
                }
            });
            if in_turn {
                ask_in_turn(&mut &near, &spec, &Progress::default()).unwrap()
            } else {
                ask(&near, &spec).unwrap()
            }
        });
        let latency = decoded(&report.latency);
        assert_eq!(latency.len(), 100);
        // Sixty were due while the server stood still; on average they waited half of it.
        let long = latency.iter_recorded().filter(|(ns, _)| *ns >= stall_ns / 6);
        let long: u64 = long.map(|(_, count)| count).sum();
        assert!(long >= 45, "{long} of 100 show the stall");
    }
}

#[test]
fn a_server_that_goes_away_ends_the_test_with_its_place_and_what_was_measured() {
    for pacing in [Pacing::Closed, Pacing::Open { per_second: 100 }] {
        let (near, far) = pair();
        drop(far);
        let error = ask(&near, &spec(pacing)).unwrap_err();
        assert!(matches!(error, ExchangeError::Connection { after: 0, .. }), "{error}");
    }
    let (near, mut far) = pair();
    let spec = ExchangeSpec { warm_up_ns: 0, ..spec(Pacing::Closed) };
    let error = thread::scope(|scope| {
        scope.spawn(move || {
            let mut request = [0; 100];
            for _ in 0..3 {
                far.read_exact(&mut request).unwrap();
                far.write_all(&[0; 1_000]).unwrap();
            }
        });
        ask(&near, &spec).unwrap_err()
    });
    let report = error.into_partial();
    assert_eq!((report.answered, decoded(&report.latency).len()), (3, 3));
    assert!(report.error.unwrap().contains("after 3 of them"));
}

#[test]
fn a_limit_on_the_rate_holds_the_answering_side_back() {
    let spec = ExchangeSpec { warm_up_ns: 0, ..spec(Pacing::Closed) };
    let (near, far) = pair();
    let (report, answered) = thread::scope(|scope| {
        let spec = &spec;
        let answering = scope.spawn(move || {
            let mut answered = 0;
            let (bytes_per_second, is_over) = (Some(110_000), &|| false);
            let bounds = Bounds { deadline_ns: None, bytes_per_second, is_over };
            answer_in_turn(&mut &far, spec, bounds, &mut answered).unwrap();
            answered
        });
        let report = ask(&near, spec).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        (report, answering.join().unwrap())
    });
    // A hundred of 1,100 bytes a second, in a tenth of one.
    assert!((1..=12).contains(&report.answered), "{}", report.answered);
    assert!(answered <= 13, "{answered}");
}

#[test]
fn what_cannot_be_is_refused() {
    let good = spec(Pacing::Closed);
    for bad in [
        ExchangeSpec { request_bytes: 0, ..good.clone() },
        ExchangeSpec { response_bytes: MESSAGE_BYTES_MAX + 1, ..good.clone() },
        ExchangeSpec { duration_ns: 0, ..good.clone() },
        ExchangeSpec { duration_ns: u64::MAX, ..good.clone() },
        ExchangeSpec { pacing: Pacing::Open { per_second: 0 }, ..good },
    ] {
        assert!(matches!(bad.check(), Err(ExchangeError::Spec(_))), "{bad:?}");
    }
}
