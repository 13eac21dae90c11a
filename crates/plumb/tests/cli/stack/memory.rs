//! Two stacks in one process, without any right: pages, documents, a hostile link.

use super::test_bed::{RunningStack, assert_error, document, plumb};

#[test]
fn a_link_in_memory_needs_no_root_and_answers_in_both_families() {
    for (address, port) in [("10.0.0.2", "10.0.0.2:1997"), ("fd00::2", "[fd00::2]:1997")] {
        let ping =
            document(&["ping", address, "--device=memory", "--interval=1ms", "--timeout=30s"]);
        assert_eq!(ping["exchanges"][0]["answered"], 10, "{ping}");
        let send = document(&["send", port, "--device=memory", "--count=200", "--timeout=30s"]);
        assert_eq!(send["exchanges"].as_array().unwrap().len(), 2);
        for exchange in send["exchanges"].as_array().unwrap() {
            assert_eq!((&exchange["answered"], &exchange["lost"]), (&200.into(), &0.into()));
        }
    }
}

#[test]
fn a_hostile_link_is_counted_and_nothing_broken_accepted() {
    let result = document(
        "send 10.0.0.2:1997 --device=memory --size=200 --count=2000 --timeout=20ms --seed=7 \
         --max-consecutive-losses=50 --faults=loss=2%,corrupt=2%,duplicate=2%,truncate=1%",
    );
    let exchange = &result["exchanges"][0];
    let number = |name: &str| exchange[name].as_u64().unwrap();
    assert_eq!(number("sent"), 2_000);
    assert_eq!(number("answered") + number("lost"), 2_000, "{exchange}");
    assert!(number("lost") > 50 && number("late") > 10, "{exchange}");
    assert_eq!(number("corrupt"), 0, "a checksum finds one bit: {exchange}");
    assert!(result["drop_counters"]["malformed_udp_checksum"].as_u64().unwrap() > 5, "{result}");
    assert!(result["fault_counters"]["rx_corrupted"].as_u64().unwrap() > 10);
}

#[test]
fn pages_fit_every_width_and_ascii_means_ascii() {
    for width in ["40", "80", "120"] {
        for words in [
            "ping 10.0.0.2 --device=memory --interval=1ms --count=50",
            "send 10.0.0.2:1997 --device=memory --count=100 --stats",
        ] {
            let output = plumb(words).env("COLUMNS", width).output().unwrap();
            let page = String::from_utf8(output.stdout).unwrap();
            assert!(page.contains("memory"), "{page}");
            for line in page.lines() {
                assert!(line.chars().count() <= width.parse().unwrap(), "{width}: {line:?}");
            }
            let output = plumb(words).arg("--ascii").output().unwrap();
            assert!(output.stdout.is_ascii());
        }
    }
}

#[test]
fn a_command_stopped_without_answers_fails() {
    let silent = "--device=memory --faults=loss=100% --timeout=1m";
    let ping = format!("ping 10.0.0.2 --stats=1ms {silent}");
    let running = RunningStack::start_until(&ping, "originated");
    running.signal("INT");
    let (status, stdout, stderr) = running.wait();
    assert_eq!(status.code(), Some(4), "{stderr}");
    assert!(stdout.contains("\"ended\": \"interrupted\""), "{stdout}");
    assert_error(&format!("send 10.0.0.2:1997 --duration=20ms {silent}"), 4, "10.0.0.2:1997");
}
