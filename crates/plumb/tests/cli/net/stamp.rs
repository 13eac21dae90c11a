//! STAMP as its users run it: sender and reflector, both modes, and what stands on the wire.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::home::{
    KilledOnDrop, TestHome, assert_ended, assert_valid, document, installed, json_of,
};
use crate::support::{PLUMB, signal, wait_for};

/// A running reflector.
struct ReflectorProcess {
    child: KilledOnDrop,
    /// Kept open for further messages.
    stderr: BufReader<ChildStderr>,
    address: SocketAddr,
}

impl ReflectorProcess {
    fn start(words: &[&str]) -> Self {
        let mut child = Command::new(PLUMB)
            .args(["agent", "--stamp", "127.0.0.1:0", "--json"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("plumb starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a line");
        let address = line.split(' ').find_map(|word| word.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { child: KilledOnDrop(child), stderr, address }
    }

    /// Interrupts it; its document.
    fn end(mut self) -> Value {
        let child = &mut self.child.0;
        assert!(signal(child.id(), "INT"));
        let text = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
        let messages = std::io::read_to_string(&mut self.stderr).unwrap();
        assert!(child.wait().unwrap().success(), "{messages}");
        document(&text)
    }
}

fn ask(bench: &TestHome, address: SocketAddr, words: &[&str]) -> Value {
    let address = address.to_string();
    let all = ["net", "--stamp", &address, "--json", "--count=20", "--interval=1ms"];
    bench.json_of(&[&all[..], words].concat())
}

/// Asks until every question of a session is answered in time: a busy host may take longer at first.
fn ask_until_whole(
    bench: &TestHome,
    address: SocketAddr,
    words: &[&str],
    sessions: &mut u64,
) -> Value {
    let mut found = Value::Null;
    wait_for("a session without loss", || {
        found = ask(bench, address, words);
        *sessions += 1;
        found["session"]["lost"] == 0
    });
    found
}

#[test]
fn both_modes_answer_every_question() {
    let bench = TestHome::new();
    let key = bench.file("key", "a shared secret\n");
    let same = bench.file("same", "a shared secret");
    for (ours, theirs) in [(vec![], vec![]), (vec!["--key", &key], vec!["--key", &same])] {
        let reflector = ReflectorProcess::start(&theirs);
        let mut sessions = 0;
        let found = ask_until_whole(&bench, reflector.address, &ours, &mut sessions);
        assert_valid(&found, "plumb.stamp/1");
        assert_eq!((&found["ended"], &found["role"]), (&"complete".into(), &"sender".into()));
        assert_eq!(found["authenticated"], !ours.is_empty());
        let session = &found["session"];
        assert_eq!((&session["answered"], &session["lost"]), (&20.into(), &0.into()), "{found}");
        assert!(session["round_trip"]["p50_ns"].as_f64().unwrap() > 0.0, "{found}");
        // One clock on both sides: the truth of the offset is zero, and the bound holds it.
        let [offset, bound] =
            ["offset_ns", "bound_ns"].map(|name| session["clock"][name].as_f64().unwrap());
        assert!(offset.abs() <= bound + 1_000.0, "{found}");
        let words = [&ours[..], &["--padding=300"]].concat();
        let padded = ask_until_whole(&bench, reflector.address, &words, &mut sessions);
        assert_eq!(padded["session"]["answered"], 20);
        assert_eq!(padded["session"]["unrecognised_tlvs"], 0);
        let account = reflector.end();
        assert_valid(&account, "plumb.stamp/1");
        assert_eq!(account["reflected"]["answered"], 20 * sessions, "{account}");
        assert_eq!(account["reflected"]["unsent"], 0);
    }
}

#[test]
fn silence_wrong_keys_and_invalid_options_are_errors() {
    let bench = TestHome::new();
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = nobody.local_addr().unwrap().to_string();
    let few = "--count=2 --interval=1ms";
    for (key, content) in [("mine", "mine mine"), ("other", "other other"), ("short", "1234567\n")]
    {
        bench.file(key, content);
    }
    let reflector = ReflectorProcess::start(&["--key", bench.path("other").to_str().unwrap()]);
    let net = format!("net --stamp {silent}");
    bench.assert_errors(&[
        (&format!("{net} {few}"), 4, "plumb agent --stamp"),
        (&format!("net --stamp {} --key mine {few}", reflector.address), 4, "--key"),
        (&format!("{net} --key short"), 2, "short"),
        ("net --stamp no-such-host.invalid", 2, "no-such-host.invalid"),
        (&format!("{net} --interval=1us"), 2, "100 µs"),
        (&format!("{net} --time=1h --interval=100us"), 2, "1000000 packets"),
        (&format!("net 127.0.0.1 --stamp {silent}"), 2, "--stamp"),
        (&format!("agent --stamp {silent}"), 4, &silent),
    ]);
    let account = reflector.end();
    assert_eq!(account["reflected"]["unsealed"], 2, "{account}");
    assert_eq!(account["reflected"]["answered"], 0, "{account}");
}

#[test]
fn a_stop_ends_the_session_with_what_was_answered() {
    let bench = TestHome::new();
    let reflector = ReflectorProcess::start(&[]);
    let address = reflector.address.to_string();
    let words = ["net", "--stamp", &address, "--time=1h", "--interval=10ms", "--json"];
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let relayed = near.local_addr().unwrap().to_string();
    let words = words.map(|word| if word == address { &relayed } else { word });
    let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| relay(reflector.address, &is_over, &near, &answers));
        let sender = bench.spawn(&words);
        wait_for("answers", || answers.load(Ordering::Relaxed) > 2);
        assert!(signal(sender.id(), "INT"));
        let output = sender.wait_with_output().unwrap();
        is_over.store(true, Ordering::Relaxed);
        assert_ended(&output, 130, &[]);
        let found = json_of(&output);
        assert_eq!(found["ended"], "interrupted");
        let number = |name: &str| found["session"][name].as_u64().unwrap();
        assert!((1..=number("sent")).contains(&number("answered")), "{found}");
    });
}

/// Stands between both sides and keeps what they say: whether it is an answer, and the datagram.
fn relay(
    reflector: SocketAddr,
    is_over: &AtomicBool,
    near: &UdpSocket,
    answers: &AtomicU64,
) -> Vec<(bool, Vec<u8>)> {
    let far = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    far.connect(reflector).expect("a way to loopback");
    for socket in [near, &far] {
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a time");
    }
    let (mut said, mut asker) = (Vec::new(), None);
    let mut buffer = [0; 2_000];
    while !is_over.load(Ordering::Relaxed) {
        if let Ok((len, from)) = near.recv_from(&mut buffer) {
            asker = Some(from);
            far.send(&buffer[..len]).expect("it is taken");
            said.push((false, buffer[..len].to_vec()));
        }
        if let Ok(len) = far.recv(&mut buffer) {
            near.send_to(&buffer[..len], asker.expect("somebody asked")).expect("it is taken");
            said.push((true, buffer[..len].to_vec()));
            answers.fetch_add(1, Ordering::Relaxed);
        }
    }
    said
}

/// A recording of datagrams between ports 40000 and 862 of IPv4, as libpcap writes it.
fn recording(said: &[(bool, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    // Version 2.4, whole packets, which begin with IP's header (LINKTYPE_RAW).
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (number, (is_answer, payload)) in (0_u32..).zip(said) {
        let udp_len = u16::try_from(payload.len() + 8).expect("a datagram");
        let ip_len = udp_len + 20;
        for word in [number, 0, u32::from(ip_len), u32::from(ip_len)] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0x45, 0]);
        file.extend(ip_len.to_be_bytes());
        file.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        let (asker, reflector) = (([10, 0, 0, 1], 40_000_u16), ([10, 0, 0, 2], 862_u16));
        let [from, to] = if *is_answer { [reflector, asker] } else { [asker, reflector] };
        file.extend(from.0);
        file.extend(to.0);
        for word in [from.1, to.1, udp_len, 0] {
            file.extend(word.to_be_bytes());
        }
        file.extend(payload);
    }
    file
}

/// What both sides say to each other in one session without loss.
fn captured_session(bench: &TestHome, theirs: &[&str], ours: &[&str]) -> Vec<(bool, Vec<u8>)> {
    let reflector = ReflectorProcess::start(theirs);
    let mut said = Vec::new();
    wait_for("a session without loss", || {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = near.local_addr().unwrap();
        let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let relaying = scope.spawn(|| relay(reflector.address, &is_over, &near, &answers));
            let found = ask(bench, address, ours);
            is_over.store(true, Ordering::Relaxed);
            said = relaying.join().unwrap();
            found["session"]["answered"] == 20 && said.len() == 40
        })
    });
    said
}

#[test]
fn answers_are_as_long_as_questions_and_tshark_reads_both() {
    let bench = TestHome::new();
    let key = bench.file("key", "a shared secret\n");
    let modes: [&[&str]; 3] = [&[], &["--ptp"], &["--key", &key]];
    for (words, padding) in modes.into_iter().flat_map(|words| [(words, 0), (words, 300)]) {
        let padded = format!("--padding={padding}");
        let said = captured_session(&bench, words, &[words, &[padded.as_str()]].concat());
        let is_sealed = words.contains(&"--key");
        let len = if is_sealed { 112 } else { 44 } + if padding > 0 { 4 + padding } else { 0 };
        assert!(said.iter().all(|(_, payload)| payload.len() == len), "{words:?}");
        let path = bench.path("said.pcap");
        std::fs::write(&path, recording(&said)).unwrap();
        let fields = ["_ws.malformed", "_ws.expert.severity", "twamp.test.seq_number"];
        let Some(rows) = decoded(path.to_str().unwrap(), &fields) else { return };
        assert_eq!(rows.len(), 40);
        for (row, (is_answer, payload)) in rows.iter().zip(&said) {
            assert_eq!((row[0].as_str(), row[1].as_str()), ("", ""), "{is_answer} {payload:?}");
            let number = u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]);
            assert_eq!(row[2], number.to_string());
        }
    }
}

/// The fields of every packet, as tshark reads them, or nothing, visibly, where it is absent.
fn decoded(recording: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    if !installed("tshark") {
        return None;
    }
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", recording, "-d", "udp.port==862,twamp.test", "-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_ended(&output, 0, &[]);
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |line: &str| line.split('\t').map(str::to_owned).collect();
    Some(text.lines().map(line).collect())
}
