//! Every mode of the protocol, plumb with plumb: what one side sends the other counts.

use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_interop::iperf3::client::Iperf3ClientError;
use plumb_interop::iperf3::control::Iperf3ControlError;
use plumb_interop::iperf3::parameters::{Iperf3Direction, Iperf3TestLength, Iperf3Transport};
use plumb_interop::iperf3::record::Iperf3Test;
use plumb_interop::iperf3::report;
use plumb_interop::iperf3::session::Iperf3Limits;

use crate::fixture::{RunningIperf3Server, client, last_test, run};

/// Modes, in the words of iperf3's options.
pub const MODES: &[&str] = &[
    "-n 20M",
    "-n 20M -R",
    "-n 20M --bidir",
    "-n 20M -P 4",
    "-n 20M -P 4 -R",
    "-n 20M -P 3 --bidir",
    "-k 100 -l 65536",
    "-n 2M -P 16",
    "-n 20M -6",
    "-n 20M -R -6",
    "-n 5M -w 65536",
    "-n 5M -M 1000",
    "-n 5M -C reno -N",
    "-n 5M -S 16 -R",
    "-n 20M -Z",
    "-t 1 -b 80M",
    "-t 1 -O 1 -b 80M",
    "-t 1 -P 128 -b 1M",
    "-t 1 --get-server-output -b 80M",
    "-t 1 -R --repeating-payload -b 80M",
    "-u -t 1 -b 10M",
    "-u -t 1 -b 10M -R",
    "-u -t 1 -b 10M --bidir",
    "-u -t 1 -b 5M -P 4",
    "-u -t 1 -b 5M -P 4 -R",
    "-u -t 1 -b 5M -P 2 --bidir",
    "-u -t 1 -b 10M --udp-counters-64bit",
    "-u -t 1 -b 10M -R --udp-counters-64bit",
    "-u -t 1 -b 10M -l 200 -6",
    "-u -n 1M -b 20M",
    "-u -n 1M -b 20M -R",
    "-u -t 1 -O 1 -b 10M",
    "-u -k 500 -b 20M",
];

/// Most of a mode's time is spent waiting, so some of them are tested beside each other, each part with a server of its own.
pub fn in_parts(modes: &[&str], test_part: impl Fn(&[&str]) + Sync) {
    std::thread::scope(|scope| {
        for part in modes.chunks(modes.len().div_ceil(3).max(1)) {
            let test_part = &test_part;
            scope.spawn(move || test_part(part));
        }
    });
}

/// What holds for any test that came to its end.
pub fn assert_sound(words: &str, test: &Iperf3Test) {
    let record = test.record.as_ref().unwrap();
    let remote = test.remote_results.as_ref().unwrap();
    let ways = if test.parameters.direction == Iperf3Direction::Both { 2 } else { 1 };
    let streams = test.parameters.streams as usize * ways;
    assert_eq!((record.streams.len(), remote.streams.len()), (streams, streams), "{words}");
    for stream in &record.streams {
        assert!(stream.error.is_none(), "{words}: {:?}", stream.error);
        let theirs = remote.stream(stream.id).unwrap_or_else(|| panic!("{words}: {}", stream.id));
        if test.parameters.protocol == Iperf3Transport::Udp {
            assert!(stream.count.bytes > 0 && theirs.bytes > 0, "{words}: stream {}", stream.id);
        }
    }
    let report = serde_json::to_value(report::document(test)).unwrap();
    let received = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
    // iperf3 reads no more once all is sent, and large buffers may still hold all of a number of bytes.
    let may_be_held = test.parameters.protocol == Iperf3Transport::Tcp
        && !matches!(test.parameters.length_limit, Iperf3TestLength::Seconds(_));
    assert!(received > 0.0 || may_be_held, "{words}: {report}");
}

/// What holds where both sides drain: nothing is between the two counts.
fn assert_equal_counts(words: &str, test: &Iperf3Test) {
    if test.parameters.omit_seconds > 0 {
        return;
    }
    let remote = test.remote_results.as_ref().unwrap();
    for stream in &test.record.as_ref().unwrap().streams {
        let theirs = remote.stream(stream.id).unwrap();
        match test.parameters.protocol {
            Iperf3Transport::Tcp => assert_eq!(stream.count.bytes, theirs.bytes, "{words}"),
            Iperf3Transport::Udp => assert_eq!(stream.count.packets, theirs.packets, "{words}"),
        }
    }
}

#[test]
fn what_one_side_sends_the_other_counts_in_every_mode() {
    in_parts(MODES, |modes| {
        let served = RunningIperf3Server::alone();
        for words in modes {
            let test =
                run(&client(served.port(), words)).unwrap_or_else(|e| panic!("{words}: {e}"));
            assert_sound(words, &test);
            assert_equal_counts(words, &test);
        }
    });
}

#[test]
fn a_number_of_bytes_is_sent_exactly() {
    let served = RunningIperf3Server::alone();
    // With small buffers a block takes many calls, and each stream ends its own.
    for words in ["-n 12345678 -P 3", "-n 12345678 -P 8 -w 8192"] {
        let test = run(&client(served.port(), words)).unwrap();
        let streams = test.record.unwrap().streams;
        let bytes: u64 = streams.iter().map(|stream| stream.count.bytes).sum();
        assert_eq!(bytes, 12_345_678, "{words}");
    }
}

#[test]
fn what_is_omitted_takes_nothing_off_a_number_of_bytes() {
    let served = RunningIperf3Server::alone();
    for words in ["-n 5M -O 1 -b 40M", "-n 5M -O 1 -b 40M -R", "-u -n 1M -O 1 -b 20M"] {
        let options = client(served.port(), words);
        let asked = options.parameters.bytes().unwrap();
        let test = run(&options).unwrap();
        let counted: u64 =
            test.record.unwrap().streams.iter().map(|stream| stream.count.bytes).sum();
        assert!(counted >= asked, "{words}: {counted} of {asked}");
    }
}

#[test]
fn the_server_tells_of_the_test_what_the_client_does() {
    let served = RunningIperf3Server::alone();
    let test = run(&client(served.port(), "-n 5M --get-server-output")).unwrap();
    let server = last_test(served.end());
    assert_eq!(server.cookie, test.cookie);
    assert_eq!(server.error, None);
    let theirs = &server.record.as_ref().unwrap().streams[0];
    assert_eq!((theirs.count.bytes, theirs.drained), (5_000_000, true));
    let report = serde_json::to_value(report::document(&test)).unwrap();
    let inner = &report["server_output_json"];
    assert_eq!(inner["end"]["sum_received"]["bytes"], 5_000_000, "{inner}");
    assert_eq!(report["plumb"]["remote"]["streams"][0]["bytes"], 5_000_000);
}

#[test]
fn intervals_add_up_to_the_totals() {
    let served = RunningIperf3Server::alone();
    for words in ["-t 1 -b 80M", "-t 1 -b 20M -R -u", "-t 2 -b 80M -O 1"] {
        let test = run(&client(served.port(), words)).unwrap();
        for stream in &test.record.unwrap().streams {
            let counted = stream.intervals.iter().filter(|interval| !interval.omitted);
            let bytes: u64 = counted.clone().map(|interval| interval.count.bytes).sum();
            assert_eq!(bytes, stream.count.bytes, "{words}");
            let mut end = Span::ZERO;
            for interval in counted {
                assert_eq!(interval.start, end, "{words}");
                end = interval.end;
            }
        }
    }
}

#[test]
fn a_paced_stream_keeps_its_rate() {
    let served = RunningIperf3Server::alone();
    for words in ["-t 2 -b 40M", "-t 2 -b 40M -u"] {
        let test = run(&client(served.port(), words)).unwrap();
        let stream = &test.record.as_ref().unwrap().streams[0];
        // As many as are due in the time that it took, whatever this machine does beside it; what it
        // could not send in time it sends later.
        let due = 40e6 / 8.0 * stream.duration.as_secs_f64();
        let ratio = stream.count.bytes as f64 / due;
        assert!((0.8..1.05).contains(&ratio), "{words}: {ratio}");
    }
}

#[test]
fn a_second_client_is_turned_away_unless_there_is_room() {
    let served = RunningIperf3Server::alone();
    let port = served.port();
    let first = std::thread::spawn(move || {
        // The second may be the first, at the beginning.
        while run(&client(port, "-t 2 -b 10M")).is_err() {}
    });
    // The first is there once the server refuses the second.
    let mut refused = false;
    while !first.is_finished() {
        // It is served before the first, or after it.
        if let Err(failure) = run(&client(port, "-n 10K")) {
            let busy = matches!(
                failure.error,
                Iperf3ClientError::Control { error: Iperf3ControlError::Busy, .. }
            );
            assert!(busy, "turned away for another reason");
            refused = true;
        }
    }
    first.join().unwrap();
    assert!(refused);
    run(&client(port, "-n 10K")).expect("there is room again");
}

#[test]
fn tests_at_the_same_time_are_told_how_long_others_ran_beside_them() {
    let served = RunningIperf3Server::with(3, Iperf3Limits::default());
    let port = served.port();
    let words = ["-t 2 -b 10M", "-t 2 -b 10M -u", "-t 2 -b 10M -u -R"];
    let tests = words.map(|words| {
        std::thread::spawn(move || run(&client(port, words)).map_err(|e| e.to_string()))
    });
    for test in tests {
        test.join().unwrap().unwrap();
    }
    let told = served.end();
    let overlaps: Vec<_> = told
        .into_iter()
        .filter_map(|notice| match notice {
            plumb_interop::iperf3::server::Iperf3ServerEvent::Ended(test) => Some(test.overlap),
            _ => None,
        })
        .collect();
    assert_eq!(overlaps.len(), 3);
    assert!(overlaps.iter().all(|overlap| overlap.tests == 2), "{overlaps:?}");
    assert!(overlaps.iter().all(|overlap| overlap.duration > Span::from_ms(500)), "{overlaps:?}");
}

#[test]
fn what_a_server_does_not_allow_is_refused_with_its_reason() {
    let limits = Iperf3Limits {
        duration: Span::from_secs(5),
        bitrate: Rate::from_bits_per_second(50_000_000),
        streams: 8,
    };
    let served = RunningIperf3Server::with(1, limits);
    for (words, why) in [
        ("-t 6 -b 1M", "longer than it allows"),
        ("-t 1", "more than it allows"),
        ("-t 1 -b 1M -P 9", "not have that many streams"),
    ] {
        let failure = run(&client(served.port(), words)).unwrap_err();
        let error = failure.to_string();
        assert!(error.contains(why) && error.contains("agreeing on the parameters"), "{error}");
    }
    run(&client(served.port(), "-n 100K -b 6M -P 8")).unwrap();
}

#[test]
fn a_user_who_stops_a_test_gets_what_there_is_and_the_server_is_free_again() {
    let served = RunningIperf3Server::alone();
    let served_port = served.port();
    // Until data flows nobody may be asked: counted from the first progress on.
    let asked = std::cell::Cell::new(0);
    let flows = std::cell::Cell::new(false);
    let stop = || flows.get() && asked.replace(asked.get() + 1) > 5;
    let options = client(served_port, "-t 60 -b 80M");
    let mut progress = |_| flows.set(true);
    let failure = plumb_interop::iperf3::client::run(&options, &stop, &mut progress).unwrap_err();
    assert!(matches!(failure.error, Iperf3ClientError::Stopped));
    let partial = failure.partial.unwrap();
    assert!(partial.record.is_some() && partial.error.is_some());
    let report = serde_json::to_value(report::document(&partial)).unwrap();
    assert!(report["error"].as_str().unwrap().contains("stopped"), "{}", report["error"]);
    run(&client(served.port(), "-n 10K")).expect("the server is free");
    let server = served.end();
    let stopped = server.iter().find_map(|notice| match notice {
        plumb_interop::iperf3::server::Iperf3ServerEvent::Ended(test) => test.error.clone(),
        _ => None,
    });
    assert!(stopped.unwrap().contains("stopped by its user"));
}
