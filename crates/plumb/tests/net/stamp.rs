//! STAMP as its users run it: sender and reflector, both modes, and what stands on the wire.
//!
//! Left out: peers of other programs, against which `plumb-net` tests both sides.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::{Bench, PLUMB, document, schema_faults};

/// A reflector under way, which ends with this.
struct Reflector {
    child: Child,
    /// Kept open, so that it may go on talking.
    said: BufReader<ChildStderr>,
    address: SocketAddr,
}

impl Reflector {
    fn start(words: &[&str]) -> Self {
        let mut child = Command::new(PLUMB)
            .args(["agent", "--stamp", "127.0.0.1:0", "--json"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("plumb starts");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        let address = line.split(' ').find_map(|word| word.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { child, said, address }
    }

    /// What it says of itself when asked to end.
    fn end(mut self) -> Value {
        let pid = self.child.id().to_string();
        let killed = Command::new("kill").args(["-INT", &pid]).status();
        assert!(killed.expect("kill runs").success());
        let mut text = String::new();
        let stdout = self.child.stdout.as_mut().expect("a pipe");
        stdout.read_to_string(&mut text).expect("text");
        let mut said = String::new();
        self.said.read_to_string(&mut said).expect("text");
        assert!(self.child.wait().expect("an end").success(), "{said}");
        document(&text)
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn key_file(bench: &Bench, name: &str, secret: &str) -> String {
    let path = bench.directory.path().join(name);
    std::fs::write(&path, secret).expect("a key file");
    path.to_str().expect("text").to_owned()
}

fn ask(bench: &Bench, address: SocketAddr, words: &[&str]) -> Value {
    let address = address.to_string();
    let all = ["net", "--stamp", &address, "--json", "--count=20", "--spacing=1ms"];
    document(&bench.fine(&[&all[..], words].concat()))
}

#[test]
fn every_question_is_answered_in_both_modes_and_both_sides_say_so() {
    let bench = Bench::new();
    let key = key_file(&bench, "key", "a shared secret\n");
    let same = key_file(&bench, "same", "a shared secret");
    for (ours, theirs) in [(vec![], vec![]), (vec!["--key", &key], vec!["--key", &same])] {
        let reflector = Reflector::start(&theirs);
        let found = ask(&bench, reflector.address, &ours);
        assert_eq!(schema_faults("plumb.stamp-1", &found), [] as [String; 0]);
        assert_eq!((&found["ended"], &found["role"]), (&"complete".into(), &"sender".into()));
        assert_eq!(found["authenticated"], !ours.is_empty());
        let session = &found["session"];
        assert_eq!((&session["answered"], &session["lost"]), (&20.into(), &0.into()), "{found}");
        assert!(session["round_trip"]["p50_ns"].as_f64().unwrap() > 0.0, "{found}");
        // One clock on both sides: the truth of the offset is zero, and the bound holds it.
        let [offset, bound] =
            ["offset_ns", "bound_ns"].map(|name| session["clock"][name].as_f64().unwrap());
        assert!(offset.abs() <= bound + 1_000.0, "{found}");
        let padded = ask(&bench, reflector.address, &[&ours[..], &["--padding=300"]].concat());
        assert_eq!(padded["session"]["answered"], 20);
        assert_eq!(padded["session"]["unrecognised_tlvs"], 0);
        let account = reflector.end();
        assert_eq!(schema_faults("plumb.stamp-1", &account), [] as [String; 0]);
        assert_eq!(account["reflected"]["answered"], 40, "{account}");
        assert_eq!(account["reflected"]["unsent"], 0);
    }
}

#[test]
fn silence_another_key_and_no_key_are_named_with_their_fix() {
    let bench = Bench::new();
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = nobody.local_addr().unwrap().to_string();
    let few = ["--count=2", "--spacing=1ms"];
    bench.refused(
        &[&["net", "--stamp", &silent][..], &few].concat(),
        &["did not answer", "2 questions were asked", "fix:", "plumb agent --stamp"],
    );
    let [mine, other] = ["mine mine", "other other"].map(|key| key_file(&bench, key, key));
    let reflector = Reflector::start(&["--key", &other]);
    let address = reflector.address.to_string();
    let words = ["net", "--stamp", &address, "--key", &mine];
    bench.refused(&[&words[..], &few].concat(), &["did not answer", "--key"]);
    let account = reflector.end();
    assert_eq!(account["reflected"]["unsealed"], 2, "{account}");
    assert_eq!(account["reflected"]["answered"], 0, "{account}");
    let short = key_file(&bench, "short", "1234567\n");
    bench.refused(&["net", "--stamp", &silent, "--key", &short], &["is no key", "fix:"]);
    bench.refused(&["net", "--stamp", "no-such-host.invalid"], &["is not known", "fix:"]);
    bench.refused(&["net", "--stamp", &silent, "--spacing=1us"], &["100 µs"]);
    let long = ["net", "--stamp", &silent, "--lasting=1h", "--spacing=100us"];
    bench.refused(&long, &["more than 1000000 questions"]);
    bench.refused(&["net", "--count=3", "127.0.0.1"], &["--stamp"]);
    bench.refused(&["net", "127.0.0.1", "--stamp", &silent], &["both", "fix:"]);
    let taken = ["agent", "--stamp", &silent];
    bench.refused(&taken, &["cannot listen", "another program has it"]);
}

#[test]
fn a_stop_ends_the_session_with_what_was_answered() {
    let bench = Bench::new();
    let reflector = Reflector::start(&[]);
    let address = reflector.address.to_string();
    let asked = format!(
        "{PLUMB} net --stamp {address} --lasting 1h --spacing 10ms --json & \
         sender=$!; sleep 1; kill -INT $sender; wait $sender; echo $? >&2"
    );
    let output = bench.shell(&asked);
    let found = document(&String::from_utf8(output.stdout).expect("text"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("130"));
    assert_eq!(found["ended"], "interrupted");
    let session = &found["session"];
    assert!(session["answered"].as_u64().unwrap() > 0, "{found}");
    assert_eq!(session["answered"].as_u64().unwrap(), session["sent"].as_u64().unwrap());
}

/// Stands between both sides and keeps what they say: whether it is an answer, and the datagram.
fn relay(reflector: SocketAddr, is_over: &AtomicBool, near: &UdpSocket) -> Vec<(bool, Vec<u8>)> {
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

/// What both sides say to each other in one session.
fn overheard(bench: &Bench, theirs: &[&str], ours: &[&str]) -> Vec<(bool, Vec<u8>)> {
    let reflector = Reflector::start(theirs);
    let near = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = near.local_addr().expect("an address");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let relaying = scope.spawn(|| relay(reflector.address, &is_over, &near));
        let found = ask(bench, address, ours);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(found["session"]["answered"], 20, "{found}");
        relaying.join().expect("the relay ends")
    })
}

#[test]
fn no_answer_is_longer_than_its_question_and_tshark_reads_both() {
    let bench = Bench::new();
    let key = key_file(&bench, "key", "a shared secret\n");
    let modes: [&[&str]; 3] = [&[], &["--ptp"], &["--key", &key]];
    for (words, padding) in modes.into_iter().flat_map(|words| [(words, 0), (words, 300)]) {
        let padded = format!("--padding={padding}");
        let said = overheard(&bench, words, &[words, &[padded.as_str()]].concat());
        let is_sealed = words.contains(&"--key");
        let len = if is_sealed { 112 } else { 44 } + if padding > 0 { 4 + padding } else { 0 };
        assert_eq!(said.len(), 40);
        assert!(said.iter().all(|(_, payload)| payload.len() == len), "{words:?}");
        let path = bench.directory.path().join("said.pcap");
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
#[expect(clippy::print_stdout, reason = "a test that cannot run says so")]
fn decoded(recording: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", recording, "-d", "udp.port==862,twamp.test", "-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let Ok(output) = command.stdin(Stdio::null()).output() else {
        println!("skipped: tshark is not installed; run 'make setup'");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "tshark is not installed");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |line: &str| line.split('\t').map(str::to_owned).collect();
    Some(text.lines().map(line).collect())
}
