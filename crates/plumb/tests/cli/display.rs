//! `plumb display serve` and `bench`: documents, pictures, refusals and what is left behind.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::documents::valid;
use crate::home::{KilledOnDrop, ProgramOutput, TestHome, wait_for_exit};
use crate::support::{signal, wait_for};

const QUICK: &str = "--rounds=1 --time=1ms --json";

#[test]
fn every_path_and_mode_is_measured_and_proved_by_one_frame() {
    let place = TestHome::new();
    let bench = place.assert_success(&format!("display bench --drawing=array,text {QUICK}"));
    let document = valid(&bench, "plumb.display/1");
    let rates = document["rates"].as_array().unwrap();
    // Five modes over three paths, and decoding, of two drawings.
    assert_eq!(rates.len(), 2 * (3 * 5 + 1));
    let frames = |drawing: &str| -> Vec<&str> {
        let of_drawing = rates.iter().filter(|rate| rate["drawing"] == drawing);
        let mut frames: Vec<&str> =
            of_drawing.filter_map(|rate| rate["checksum"].as_str()).collect();
        frames.sort_unstable();
        frames.dedup();
        frames
    };
    assert_eq!((frames("array").len(), frames("text").len()), (1, 1), "{document}");
    for rate in rates {
        assert!(rate["rate"].as_f64().unwrap() > 0.0, "{rate}");
        let round_trips = rate["round_trips"].as_f64().unwrap();
        match rate["mode"].as_str().unwrap() {
            "decode" => {}
            "incremental" => {
                assert!(round_trips >= rate["units"].as_f64().unwrap() / 40.0, "{rate}");
            }
            _ => assert!(round_trips <= 2.0, "{rate}"),
        }
    }
}

#[test]
fn a_display_serves_its_clients_and_leaves_nothing_behind() {
    let place = TestHome::new();
    let socket = place.path("display");
    let address = format!("unix:{}", socket.display());
    let mut serve = KilledOnDrop(place.spawn(&["display", "serve", &address]));
    // The file is there before anything listens.
    wait_for("the display", || UnixStream::connect(&socket).is_ok());

    // Something that is no client of a display.
    let mut other = UnixStream::connect(&socket).unwrap();
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    other.read_to_end(&mut reply).unwrap();
    assert_eq!(reply[0], 0x85, "it is refused and closed: {reply:?}");

    let picture = place.path("array.png");
    let bench = place.assert_success(&[
        "display",
        "bench",
        "--connect",
        &address,
        "--drawing=structured-array",
        "--rounds=1",
        "--time=1ms",
        "--json",
        "--png",
        picture.to_str().unwrap(),
    ]);
    let document = valid(&bench, "plumb.display/1");
    assert_eq!(document["rates"][0]["path"], address.as_str());
    assert!(std::fs::read(&picture).unwrap().starts_with(b"\x89PNG"));

    signal(serve.0.id(), "INT");
    let status = wait_for_exit(&mut serve.0);
    assert_eq!(status.code(), Some(0));
    let mut said = String::new();
    serve.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    for words in ["display at unix:", "clients", "refused 1: the first message was no greeting"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!socket.exists(), "the socket is left");
}

#[test]
fn a_chip_of_a_million_rectangles_is_drawn_structured_in_few_bytes() {
    let place = TestHome::new();
    let line =
        "display bench --path=direct --drawing=chip,structured-chip --rounds=1 --time=1ms --json";
    let document = place.json_of(line);
    let rate = |drawing: &str| {
        let rates = document["rates"].as_array().unwrap();
        let found = rates.iter().find(|it| it["drawing"] == drawing && it["mode"] == "batch");
        found.unwrap().clone()
    };
    let (flat, structured) = (rate("chip"), rate("structured-chip"));
    assert_eq!(flat["units"], 1_009_034);
    assert_eq!(flat["checksum"], structured["checksum"]);
    let bytes = |it: &serde_json::Value| it["bytes_sent"].as_f64().unwrap();
    assert!(bytes(&structured) * 1_000.0 < bytes(&flat), "{structured} {flat}");
}

#[test]
fn bad_requests_of_a_display_name_what_would_do() {
    let place = TestHome::new();
    place.assert_errors(&[
        ("display bench --path=carrier-pigeon", 2, "direct, unix and tcp"),
        ("display bench --drawing=circle", 2, "polygon"),
        ("display bench --connect=unix:absent --rounds=1", 4, "plumb display serve unix:absent"),
        ("display serve here", 2, "unix:/tmp/display"),
        ("display serve --memory=1", 2, "at least"),
    ]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let refused: ProgramOutput = place.run(&["display", "serve", &taken]);
    assert_eq!(refused.code, Some(4));
    assert!(refused.stderr.contains("cannot listen"), "{}", refused.stderr);
}
