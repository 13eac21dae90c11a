//! `plumb display serve` and `bench`: documents, pictures, refusals and what is left behind.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::documents::valid;
use crate::home::{KilledOnDrop, ProgramOutput, TestHome, wait_for_exit};
use crate::support::{signal, skip, wait_for};

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
fn a_tcp_in_the_clients_process_carries_what_the_kernels_does() {
    let place = TestHome::new();
    let run = place.assert_success(
        "run display.transport --quick --launches=1 --set transport=tcp,process-tcp --set mode=batch \
         --set placement=same-cpu --json",
    );
    let document = valid(&run, "plumb.run/1");
    if let Some(cell) = document["unavailable"].as_array().unwrap().first() {
        return skip(&format!("no TAP: {cell}"));
    }
    let of = |response: &str| -> Vec<f64> {
        let results = document["results"].as_array().unwrap();
        let of_response = results.iter().filter(|cell| cell["response"] == response);
        // A busy machine has too few samples for a median.
        of_response.map(|cell| cell["summary"]["mean"].as_f64().unwrap()).collect()
    };
    let (rates, bytes) = (of("rate"), of("bytes"));
    assert!(rates.len() == 2 && rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
    assert!(bytes[0] > 15_000.0 && (bytes[0] - bytes[1]).abs() < 1e-9, "{bytes:?}");
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
    for words in ["display at unix:", "clients", "refused 1: the first message was not a greeting"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!socket.exists(), "the socket is left");
}

#[test]
fn an_agent_draws_for_applications_that_speak_the_protocol_and_for_those_that_do_not() {
    let place = TestHome::new();
    let at = |name: &str| format!("unix:{}", place.path(name).display());
    let (display, agent) = (at("display"), at("agent"));
    let mut serve = KilledOnDrop(place.spawn(&["display", "serve", &display]));
    wait_for("the display", || UnixStream::connect(place.path("display")).is_ok());
    let mut agent_process =
        KilledOnDrop(place.spawn(&["display", "agent", "--to", &display, &agent]));
    wait_for("the agent", || UnixStream::connect(place.path("agent")).is_ok());

    let bench = |address: &str| {
        let line = ["display", "bench", "--connect", address, "--drawing=array,array-bitmap"];
        let bench =
            place.assert_success(&[&line[..], &["--rounds=1", "--time=1ms", "--json"]].concat());
        let document = valid(&bench, "plumb.display/1");
        let rates = document["rates"].as_array().unwrap();
        assert_eq!(rates.len(), 2 * 5);
        rates.iter().filter_map(|rate| rate["checksum"].as_str().map(str::to_owned)).collect()
    };
    let (frames, direct): (Vec<String>, Vec<String>) = (bench(&agent), bench(&display));
    assert_eq!(frames, direct);

    let picture = place.path("text.png");
    let text = ["display", "agent", "--text", "--to", &display, "--png", picture.to_str().unwrap()];
    let mut text = place.command(&text);
    let mut text = KilledOnDrop(text.stdin(Stdio::piped()).spawn().unwrap());
    text.0.stdin.take().unwrap().write_all(b"hello\nworld").unwrap();
    assert_eq!(wait_for_exit(&mut text.0).code(), Some(0));
    assert!(std::fs::read(&picture).unwrap().starts_with(b"\x89PNG"));

    // A display that goes ends the agent, which says so.
    signal(serve.0.id(), "KILL");
    wait_for_exit(&mut serve.0);
    let mut application = UnixStream::connect(place.path("agent")).unwrap();
    let mut hello_and_picture = Vec::new();
    for request in [
        &b"\x01\x01\0\0\x02\0\0\0\x01\0"[..],
        b"\x02\0\x01\0\x04\0\0\0\0\0\0\0",
        b"\x06\0\x02\0\x18\0\0\0\0\0\0\0\0\0\0\0\x08\0\x08\0\0\0\0\0\0\0\0\0\0\0\x01\0",
        b"\x08\x01\x03\0\x08\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        hello_and_picture.extend_from_slice(request);
    }
    application.write_all(&hello_and_picture).unwrap();
    assert_eq!(wait_for_exit(&mut agent_process.0).code(), Some(4));
    let mut said = String::new();
    agent_process.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("no display at unix:"), "{said}");
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
fn a_session_ends_in_the_same_frames_over_every_path() {
    let place = TestHome::new();
    let session = place.assert_success("display bench --session --rounds=1 --json");
    let session = valid(&session, "plumb.display/1")["session"].clone();
    let tasks = session.as_array().unwrap();
    assert_eq!(tasks.len(), 3 * 6);
    for (at, task) in tasks.iter().enumerate() {
        let first = &tasks[at % 6];
        assert!(first["checksum"].is_string() && task["ns"].as_f64() > Some(0.0), "{task}");
        assert_eq!((&task["task"], &task["checksum"]), (&first["task"], &first["checksum"]));
        let few = if task["task"] == "cold-start" { 2.0 } else { 1.0 };
        assert!(task["round_trips"].as_f64() <= Some(few), "{task}");
    }
}

#[test]
fn bad_requests_of_a_display_name_what_would_do() {
    let place = TestHome::new();
    place.assert_errors(&[
        ("display bench --path=carrier-pigeon", 2, "direct, unix, tcp, messages"),
        ("display bench --drawing=circle", 2, "polygon"),
        ("display bench --connect=unix:absent --rounds=1", 4, "plumb display serve unix:absent"),
        ("display serve here", 2, "unix:/tmp/display"),
        ("display serve --memory=1", 2, "at least"),
        ("display agent --to=unix:absent", 4, "plumb display serve"),
        ("display agent --png=text.png", 2, "--text"),
        ("display serve --http=here", 2, "127.0.0.1:8080"),
    ]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let refused: ProgramOutput = place.run(&["display", "serve", &taken]);
    assert_eq!(refused.code, Some(4));
    assert!(refused.stderr.contains("cannot listen"), "{}", refused.stderr);
}

/// A display with a page at this address, and the page's URL.
fn serve_page(place: &TestHome, address: &str) -> (KilledOnDrop, String) {
    let socket = format!("unix:{}", place.path("display").display());
    let mut serve = KilledOnDrop(place.spawn(&["display", "serve", &socket, "--http", address]));
    let mut lines = BufReader::new(serve.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let url = lines.find_map(|line| line.strip_prefix("page at ").map(str::to_owned));
    (serve, url.unwrap())
}

/// The answer to a request with these headers, as far as its length says.
fn ask(host: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(host.replace("0.0.0.0", "127.0.0.1")).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    while !answer.ends_with("\r\n\r\n") {
        let begin = answer.len();
        assert_ne!(reader.read_line(&mut answer).unwrap(), 0, "{answer}");
        if let Some(text) = answer[begin..].strip_prefix("content-length: ") {
            length = text.trim().parse().unwrap();
        }
    }
    reader.take(length).read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_browser_draws_on_a_display_and_shows_what_others_draw() {
    if Command::new("chromium").arg("--version").output().is_err() {
        return skip("chromium is not installed; run 'make setup'");
    }
    let place = TestHome::new();
    let (mut serve, url) = serve_page(&place, ":0");
    let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let clients = || {
        let answer = ask(host, "/clients", &format!("Host: {host}\r\n"));
        let (_, list) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<Vec<serde_json::Value>>(list).unwrap()
    };
    // One that has drawn, and does nothing more: it is pictured all the same.
    let mut idle = UnixStream::connect(place.path("display")).unwrap();
    let messages: [(u8, &[u8]); 4] = [
        (1, &[1, 0]),
        (2, &[0; 4]),
        (6, &[0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
        (8, &[0; 8]),
    ];
    for (opcode, body) in messages {
        let len = u8::try_from(body.len()).unwrap();
        idle.write_all(&[opcode, 0, 0, 0, len, 0, 0, 0]).unwrap();
        idle.write_all(body).unwrap();
    }
    let profile = format!("--user-data-dir={}", place.path("profile").display());
    let mut browser = Command::new("chromium");
    browser.args(["--headless=new", "--no-sandbox", "--disable-gpu", &profile, &url]);
    browser.args(["--remote-debugging-port=0"]).stdout(Stdio::null()).stderr(Stdio::null());
    let browser = KilledOnDrop(browser.spawn().unwrap());
    wait_for("ten frames of the browser, and pictures of both", || {
        let clients = clients();
        let all_are_pictured = clients.iter().all(|client| client["has_picture"] == true);
        let has_drawn = |client: &serde_json::Value| {
            client["name"] == "browser"
                && client["frames"].as_u64() >= Some(10)
                && client["items"].as_u64() >= Some(7_800)
        };
        clients.len() == 2 && all_are_pictured && clients.iter().any(has_drawn)
    });
    drop(browser);
    wait_for("the browser's place to be free", || clients().len() == 1);
    signal(serve.0.id(), "INT");
    assert_eq!(wait_for_exit(&mut serve.0).code(), Some(0));
}

#[test]
fn a_displays_page_is_for_its_own_scripts_and_for_who_has_its_token() {
    let place = TestHome::new();
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let status = |host: &str, path: &str, headers: &str| {
        ask(host, path, headers).split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let (serve, url) = serve_page(&place, ":0");
    let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let here = format!("Host: {host}\r\n");
    assert_eq!(status(host, "/", &here), "200");
    assert_eq!(status(host, "/clients/7", &here), "404");
    // A name that was made to lead here, another site's script, and a program that is no browser.
    assert_eq!(status(host, "/", "Host: elsewhere.example\r\n"), "421");
    let foreign = format!("{here}{upgrade}Origin: http://elsewhere.example\r\n");
    assert_eq!(status(host, "/display", &foreign), "403");
    assert_eq!(status(host, "/display", &format!("{here}{upgrade}")), "403");
    drop(serve);

    let (_serve, url) = serve_page(&place, "0.0.0.0:0");
    let (host, token) = url.strip_prefix("http://").unwrap().split_once("/#").unwrap();
    let here = format!("Host: {host}\r\n");
    let own = format!("{here}{upgrade}Origin: http://{host}\r\n");
    for path in ["/clients", "/clients?token=", "/display", "/clients/1?token=0"] {
        assert_eq!(status(host, path, &own), "403", "{path}");
    }
    assert_eq!(status(host, &format!("/clients?token={token}"), &here), "200");
    assert_eq!(status(host, &format!("/clients/1?frame=3&token={token}"), &here), "404");
}
