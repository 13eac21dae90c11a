//! Requests and responses over loopback, without a session around them.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;

use plumb_base::stats::histogram::Histogram;

use super::*;
use crate::measure::tls;
use plumb_clock::sleep_until;
use plumb_remote::secure::HostIdentity;

fn spec(pacing: RequestPacing) -> RequestSpec {
    RequestSpec {
        request_bytes: 100,
        response_bytes: 1_000,
        pacing,
        warm_up_ns: 20_000_000,
        duration_ns: 100_000_000,
    }
}

fn ask(stream: &TcpStream, spec: &RequestSpec, is_over: &dyn Fn() -> bool) -> Asked {
    let progress = Counter::default();
    let RequestPacing::Open { per_second } = spec.pacing else {
        return request_in_turn(&mut &*stream, spec, &progress);
    };
    let close = || drop(stream.shutdown(Shutdown::Both));
    open_loop::send_requests((stream, stream, close), spec, per_second, &progress, is_over)
}

/// Sends requests to a peer that answers `count` of them, calling `pause` before each answer.
fn ask_slow(count: u64, pause: impl Fn(u64) + Send, is_over: bool) -> Asked {
    let spec = RequestSpec { warm_up_ns: 0, ..spec(RequestPacing::Open { per_second: 1_000 }) };
    let (near, mut far) = relay::connected();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut request = [0; 100];
            for index in 0..count {
                far.read_exact(&mut request).unwrap();
                pause(index);
                far.write_all(&[0; 1_000]).unwrap();
            }
        });
        ask(&near, &spec, &|| is_over)
    })
}

type Asked = Result<RequesterReport, RequestError>;

fn with_answers(spec: &RequestSpec) -> (Asked, io::Result<u64>) {
    let (near, far) = relay::connected();
    thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let mut answered = 0;
            let bounds = ResponderBounds { bytes_per_second: None, is_over: &|| false };
            respond_in_turn(&mut &far, spec, bounds, &mut answered).map(|()| answered)
        });
        let report = ask(&near, spec, &|| false);
        near.shutdown(Shutdown::Write).unwrap();
        (report, answering.join().unwrap())
    })
}

fn decoded(histogram: &[u8]) -> Histogram {
    Histogram::decode(histogram).unwrap()
}

#[test]
fn at_open_loop_as_many_are_sent_as_are_due() {
    let spec = spec(RequestPacing::Open { per_second: 2_000 });
    let (report, answered) = with_answers(&spec);
    let report = report.unwrap();
    assert_eq!((report.due, report.answered), (200, 200));
    assert_eq!(answered.unwrap(), 240);
    assert_eq!(decoded(&report.lateness).len(), 200);
    assert_eq!(report.cpu_requests, 240);
}

#[test]
fn the_time_that_counts_lasts_until_the_last_response_was_read() {
    let began = monotonic_ns();
    // A quarter of the rate.
    let report = ask_slow(100, |index| sleep_until(began + (index + 1) * 4_000_000), false);
    let (report, took) = (report.unwrap(), monotonic_ns() - began);
    assert_eq!((report.due, report.answered), (100, 100));
    let counted = report.counted_ns;
    assert!(counted > 300_000_000 && counted < took, "{counted} ns of {took}");
    let spec = spec(RequestPacing::Open { per_second: 1_000 });
    let counted = with_answers(&spec).0.unwrap().counted_ns;
    assert!(counted >= spec.duration_ns, "what is asked for counts as a whole");
}

#[test]
fn what_the_time_did_not_suffice_for_is_said_to_be_too_much() {
    let error = ask_slow(7, |_| {}, true).unwrap_err();
    assert!(matches!(error, RequestError::Unfinished { .. }), "{error}");
    assert!(error.to_string().contains("fewer a second"), "{error}");
    let report = error.into_partial();
    assert!(report.answered <= 7 && report.answered <= report.due, "{report:?}");
}

#[test]
fn a_stall_counts_for_every_request_that_it_held_up() {
    let stall_ns = 60_000_000;
    let stall = |index| {
        if index == 20 {
            sleep_until(monotonic_ns() + stall_ns);
        }
    };
    let latency = decoded(&ask_slow(100, stall, false).unwrap().latency);
    assert_eq!(latency.len(), 100);
    // Sixty were due while the server stood still; on average they waited half of it.
    let long = latency.iter_recorded().filter(|(ns, _)| *ns >= stall_ns / 6);
    let long: u64 = long.map(|(_, count)| count).sum();
    assert!(long >= 45, "{long} of 100 show the stall");
}

#[test]
fn an_encrypted_connection_carries_as_many_at_a_time_as_are_under_way() {
    let spec = RequestSpec {
        warm_up_ns: 0,
        duration_ns: 500_000_000,
        ..spec(RequestPacing::Open { per_second: 100 })
    };
    let each_way_ns = 50_000_000;
    let (near, far) = relay::stream(each_way_ns);
    let identity = HostIdentity::generate().unwrap();
    let accepting = Arc::new(tls::server_configuration(&identity).unwrap());
    let connecting = Arc::new(tls::client_configuration(Some(identity.fingerprint())).unwrap());
    let (report, answered) = thread::scope(|scope| {
        let spec = &spec;
        let answering = scope.spawn(move || {
            let mut answered = 0;
            let bounds = ResponderBounds { bytes_per_second: None, is_over: &|| false };
            let mut secure = tls::accept(&far, &accepting)?;
            respond_in_turn(&mut secure, spec, bounds, &mut answered).map(|()| answered)
        });
        let (mut reader, mut writer) =
            tls::split(tls::connect(&near, &connecting).unwrap()).unwrap();
        let close = || drop(near.shutdown(Shutdown::Both));
        let halves = (&mut reader, &mut writer, close);
        let progress = Counter::default();
        let report = open_loop::send_requests(halves, spec, 100, &progress, &|| false).unwrap();
        writer.send_close_notify().unwrap();
        (report, answering.join().unwrap())
    });
    assert_eq!((report.due, report.answered, answered.unwrap()), (50, 50, 50));
    held_up_by_the_path_alone(&report, 2 * each_way_ns);
}

/// One after another, they would have taken a round trip each, and most of them would have waited for that.
pub(crate) fn held_up_by_the_path_alone(report: &RequesterReport, round_trip_ns: u64) {
    let latency = decoded(&report.latency);
    let in_turn_ns = report.due * round_trip_ns;
    assert!(latency.min() >= round_trip_ns * 99 / 100, "{} ns", latency.min());
    let (half, counted) = (latency.quantile(0.5), report.counted_ns);
    assert!(half < in_turn_ns / 4, "half of them took {half} ns or more");
    assert!(counted < in_turn_ns * 3 / 4, "all of them took {counted} ns");
}

#[test]
fn a_server_that_goes_away_ends_the_test_with_its_place_and_what_was_measured() {
    for pacing in [RequestPacing::Closed, RequestPacing::Open { per_second: 100 }] {
        let (near, far) = relay::connected();
        drop(far);
        let error = ask(&near, &spec(pacing), &|| false).unwrap_err();
        assert!(matches!(error, RequestError::Connection { after: 0, .. }), "{error}");
    }
    let (near, mut far) = relay::connected();
    let spec = RequestSpec { warm_up_ns: 0, ..spec(RequestPacing::Closed) };
    let error = thread::scope(|scope| {
        scope.spawn(move || {
            let mut request = [0; 100];
            for _ in 0..3 {
                far.read_exact(&mut request).unwrap();
                far.write_all(&[0; 1_000]).unwrap();
            }
        });
        ask(&near, &spec, &|| false).unwrap_err()
    });
    let report = error.into_partial();
    assert_eq!((report.answered, decoded(&report.latency).len()), (3, 3));
    assert!(report.error.unwrap().contains("after 3 of them"));
}

#[test]
fn a_limit_on_the_rate_holds_the_answering_side_back() {
    let spec = RequestSpec { warm_up_ns: 0, ..spec(RequestPacing::Closed) };
    let (near, far) = relay::connected();
    let (report, answered) = thread::scope(|scope| {
        let spec = &spec;
        let answering = scope.spawn(move || {
            let mut answered = 0;
            let (bytes_per_second, is_over) = (Some(110_000), &|| false);
            let bounds = ResponderBounds { bytes_per_second, is_over };
            respond_in_turn(&mut &far, spec, bounds, &mut answered).unwrap();
            answered
        });
        let report = ask(&near, spec, &|| false).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        (report, answering.join().unwrap())
    });
    // A hundred of 1,100 bytes a second, in a tenth of one.
    assert!((1..=12).contains(&report.answered), "{}", report.answered);
    assert!(answered <= 13, "{answered}");
}

#[test]
fn what_cannot_be_is_refused() {
    let good = spec(RequestPacing::Closed);
    for bad in [
        RequestSpec { request_bytes: 0, ..good.clone() },
        RequestSpec { response_bytes: MESSAGE_BYTES_MAX + 1, ..good.clone() },
        RequestSpec { duration_ns: 0, ..good.clone() },
        RequestSpec { duration_ns: u64::MAX, ..good.clone() },
        RequestSpec { pacing: RequestPacing::Open { per_second: 0 }, ..good },
    ] {
        assert!(matches!(bad.check(), Err(RequestError::Spec(_))), "{bad:?}");
    }
}
