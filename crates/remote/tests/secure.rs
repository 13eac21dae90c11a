//! The listening agent from outside: pairing, sessions, and everybody who tries something else.
//!
//! Over loopback, with an echo in the place of the protocol. Left out: the parts by themselves, which
//! have tests beside them.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_remote::secure::admission::AdmissionRefusal;
use plumb_remote::secure::{
    AgentAddress, HostIdentity, ListenerEvent, ListenerLimits, PairingToken, PeerStore,
    SecureConnectError, SecureListener, SecureStream, SessionService, connect,
};
use rand::RngExt as _;

/// Echoes, and keeps what happened.
struct Echo(Mutex<mpsc::Sender<ListenerEvent>>);

impl SessionService for Echo {
    fn serve(&self, mut stream: SecureStream, _peer: &str) {
        let mut buffer = [0; 4096];
        while let Ok(read) = stream.read(&mut buffer) {
            if read == 0 || stream.write_all(&buffer[..read]).is_err() || stream.flush().is_err() {
                break;
            }
        }
    }

    fn on_event(&self, event: &ListenerEvent) {
        self.0.lock().unwrap().send(event.clone()).ok();
    }
}

/// A client's or an agent's directory.
struct PairingTestHost {
    place: tempfile::TempDir,
    identity: HostIdentity,
}

impl PairingTestHost {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let identity = HostIdentity::open_or_create(place.path()).unwrap();
        Self { place, identity }
    }

    fn directory(&self) -> &Path {
        self.place.path()
    }

    fn peers(&self) -> PeerStore {
        PeerStore::in_directory(self.directory())
    }

    fn connect(&self, agent: &AgentAddress) -> Result<SecureStream, SecureConnectError> {
        connect::connect(&self.identity, &self.peers(), agent)
    }

    fn pair(&self, agent: &AgentAddress, token: &PairingToken) -> Result<(), SecureConnectError> {
        connect::pair(&self.identity, &self.peers(), agent, "tester", token).map(drop)
    }
}

fn remote(address: SocketAddr) -> AgentAddress {
    AgentAddress { name: format!("here:{}", address.port()), addresses: vec![address] }
}

/// Runs `test` beside an agent that listens on loopback.
fn with_agent(
    limits: ListenerLimits,
    test: impl FnOnce(&SecureListener, &AgentAddress, &mpsc::Receiver<ListenerEvent>),
) -> PairingTestHost {
    with_agent_of(PairingTestHost::new(), limits, test)
}

/// The same on a host that the test knows.
fn with_agent_of(
    host: PairingTestHost,
    limits: ListenerLimits,
    test: impl FnOnce(&SecureListener, &AgentAddress, &mpsc::Receiver<ListenerEvent>),
) -> PairingTestHost {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = SecureListener::bind(any, &host.identity, host.peers(), limits).unwrap();
    let agent = remote(listener.address().unwrap());
    let (sender, events) = mpsc::channel();
    let echo = Echo(Mutex::new(sender));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| listener.run(&echo));
        // The agent ends even if the test fails, or the scope would wait for ever.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            test(&listener, &agent, &events);
        }));
        listener.stop();
        running.join().unwrap().unwrap();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    assert_eq!(listener.connections(), 0, "nothing is left behind");
    host
}

fn paired(listener: &SecureListener, agent: &AgentAddress) -> PairingTestHost {
    let host = PairingTestHost::new();
    let token = PairingToken::generate().unwrap();
    listener.open_pairing(token.clone());
    host.pair(agent, &token).unwrap();
    host
}

fn echo(stream: &mut SecureStream, words: &[u8]) {
    stream.write_all(words).unwrap();
    stream.flush().unwrap();
    let mut back = vec![0; words.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, words);
}

fn refusal(result: Result<impl Sized, SecureConnectError>) -> AdmissionRefusal {
    match result.map(|_| ()) {
        Err(SecureConnectError::Refused(refusal)) => refusal,
        other => panic!("expected a refusal, not {other:?}"),
    }
}

/// The next event that `wanted` picks; a minute is never needed.
fn event<T>(
    events: &mpsc::Receiver<ListenerEvent>,
    wanted: impl Fn(&ListenerEvent) -> Option<T>,
) -> T {
    loop {
        let event = events.recv_timeout(Duration::from_mins(1)).expect("an event in time");
        if let Some(found) = wanted(&event) {
            return found;
        }
    }
}

#[test]
fn a_paired_client_has_a_session_and_both_sides_remember() {
    let agent_host = with_agent(ListenerLimits::default(), |listener, agent, _| {
        let client = paired(listener, agent);
        for _ in 0..2 {
            let mut stream = client.connect(agent).unwrap();
            echo(&mut stream, b"hello");
            echo(&mut stream, &[7; 4_000]);
            stream.close();
        }
        assert_eq!(client.peers().read().unwrap().len(), 1);
    });
    let known = agent_host.peers().read().unwrap();
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].name, "tester");
}

#[test]
fn an_unpaired_host_is_refused_with_the_fix() {
    with_agent(ListenerLimits::default(), |listener, agent, events| {
        let unpaired = PairingTestHost::new();
        let error = unpaired.connect(agent).unwrap_err();
        assert!(matches!(error, SecureConnectError::NotPaired { .. }), "{error}");
        let token = PairingToken::generate().unwrap();
        assert_eq!(refusal(unpaired.pair(agent, &token)), AdmissionRefusal::NotPairing);
        // One that knows the agent, but that the agent does not know.
        let friend = paired(listener, agent);
        let copied = friend.directory().join("peers");
        std::fs::copy(copied, unpaired.directory().join("peers")).unwrap();
        let refused = refusal(unpaired.connect(agent));
        assert!(refused.to_string().contains("--pair"), "{refused}");
        let seen = event(events, |event| match event {
            ListenerEvent::Refused { refusal: AdmissionRefusal::NotPaired { client }, .. } => {
                Some(*client)
            }
            _ => None,
        });
        assert_eq!(seen, unpaired.identity.fingerprint());
        assert_eq!(
            refusal(unpaired.pair(agent, &PairingToken::generate().unwrap())),
            AdmissionRefusal::TokenUsed
        );
    });
}

#[test]
fn an_agent_that_cannot_keep_a_peer_says_why_and_its_token_stays_good() {
    let host = PairingTestHost::new();
    let list = host.directory().join("peers");
    with_agent_of(host, ListenerLimits::default(), |listener, agent, events| {
        let token = PairingToken::generate().unwrap();
        listener.open_pairing(token.clone());
        let (client, broken) = (PairingTestHost::new(), PairingTestHost::new());
        // As with a full disk: the place of the list is taken by what is no list.
        std::fs::create_dir(&list).unwrap();
        assert_eq!(refusal(broken.pair(agent, &token)), AdmissionRefusal::AgentFailure);
        let reason = event(events, |event| match event {
            ListenerEvent::Failed { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        assert!(reason.contains("the list of peers"), "{reason}");
        std::fs::remove_dir(&list).unwrap();
        client.pair(agent, &token).unwrap();
    });
}

#[test]
fn another_key_under_a_known_name_is_refused_before_anything_is_said() {
    let client = PairingTestHost::new();
    let mut old = None;
    with_agent(ListenerLimits::default(), |listener, agent, _| {
        let token = PairingToken::generate().unwrap();
        listener.open_pairing(token.clone());
        client.pair(agent, &token).unwrap();
        old = Some(agent.name.clone());
    });
    with_agent(ListenerLimits::default(), |_, agent, events| {
        let name = old.clone().unwrap();
        let agent = AgentAddress { name, ..agent.clone() };
        let error = client.connect(&agent).unwrap_err();
        assert!(matches!(error, SecureConnectError::KeyChanged { .. }), "{error}");
        // The agent saw a connection that ended, and no greeting.
        let reason = event(events, |event| match event {
            ListenerEvent::Failed { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        assert!(!reason.is_empty());
    });
}

/// Passes one connection through, and keeps what the client sent.
fn recording_proxy(to: SocketAddr) -> (AgentAddress, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = remote(listener.local_addr().unwrap());
    let recorder = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut agent = TcpStream::connect(to).unwrap();
        let (mut agent_reader, mut client_writer) =
            (agent.try_clone().unwrap(), client.try_clone().unwrap());
        let back = std::thread::spawn(move || {
            std::io::copy(&mut agent_reader, &mut client_writer).ok();
            client_writer.shutdown(std::net::Shutdown::Both).ok();
        });
        let mut recorded = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = client.read(&mut buffer) {
            recorded.extend_from_slice(&buffer[..read]);
            if agent.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        agent.shutdown(std::net::Shutdown::Both).ok();
        back.join().unwrap();
        recorded
    });
    (remote, recorder)
}

#[test]
fn a_recorded_pairing_or_session_played_again_is_refused() {
    with_agent(ListenerLimits::default(), |listener, agent, events| {
        let client = PairingTestHost::new();
        let token = PairingToken::generate().unwrap();
        listener.open_pairing(token.clone());
        let (proxy, recorder) = recording_proxy(agent.addresses[0]);
        client.pair(&proxy, &token).unwrap();
        let pairing = recorder.join().unwrap();
        let (proxy_again, recorder) = recording_proxy(agent.addresses[0]);
        let through = AgentAddress { name: proxy.name.clone(), ..proxy_again };
        let mut stream = client.connect(&through).unwrap();
        echo(&mut stream, b"secret");
        stream.close();
        let session = recorder.join().unwrap();
        assert!(pairing.len() > 500 && session.len() > 500, "both were recorded");
        event(events, |event| matches!(event, ListenerEvent::Ended { .. }).then_some(()));
        for recorded in [pairing, session] {
            // A token that is open again is not used by a recording either.
            listener.open_pairing(token.clone());
            let mut replay = TcpStream::connect(agent.addresses[0]).unwrap();
            replay.write_all(&recorded).ok();
            let reason = event(events, |event| match event {
                ListenerEvent::Failed { reason, .. } => Some(Ok(reason.clone())),
                ListenerEvent::Began { .. } | ListenerEvent::Paired { .. } => {
                    Some(Err(event.clone()))
                }
                _ => None,
            });
            println!("refused: {reason:?}");
            assert!(reason.is_ok());
            assert!(listener.is_pairing());
        }
    });
}

#[test]
fn a_man_in_the_middle_cannot_pair_with_a_proof_he_was_shown() {
    with_agent(ListenerLimits::default(), |listener, agent, _| {
        let token = PairingToken::generate().unwrap();
        listener.open_pairing(token.clone());
        // The user's client pairs with an agent of the middle's own; its token is another.
        with_agent(ListenerLimits::default(), |middle, false_agent, _| {
            middle.open_pairing(PairingToken::generate().unwrap());
            let client = PairingTestHost::new();
            let refused = refusal(client.pair(false_agent, &token));
            assert_eq!(refused, AdmissionRefusal::WrongToken { tries_left: 4 });
            let soon = refusal(client.pair(false_agent, &token));
            assert!(matches!(soon, AdmissionRefusal::TooSoon { .. }), "{soon}");
            assert!(middle.is_pairing(), "one wrong try does not spoil the token");
            assert_eq!(client.peers().read().unwrap(), [], "an impostor is not remembered");
        });
        assert!(listener.is_pairing());
        paired(listener, agent);
    });
}

#[test]
fn a_thousand_silent_connections_cost_little_and_keep_nobody_else_out() {
    let limits = ListenerLimits { handshake: Span::from_secs(20), ..ListenerLimits::default() };
    with_agent(limits, |listener, agent, _| {
        let client = paired(listener, agent);
        let mut silent = Vec::new();
        for n in 0..1_000 {
            let connected = TcpStream::connect(agent.addresses[0]);
            silent.push(connected.unwrap_or_else(|error| panic!("connection {n}: {error}")));
            // Places, and those who had to leave one and have not gone yet.
            let most = limits.pending_per_address + limits.pending + 1;
            assert!(listener.connections() <= most);
        }
        // While all of them stay, from the same address.
        let mut stream = client.connect(agent).unwrap();
        echo(&mut stream, b"in spite of them");
        // All but as many as have places have been ended, long before their time.
        let end_ns = monotonic_ns() + 15_000_000_000;
        while silent.len() > limits.pending_per_address {
            assert!(monotonic_ns() < end_ns, "{} are still there", silent.len());
            silent.retain_mut(|stream| {
                stream.set_nonblocking(true).unwrap();
                let read = stream.read(&mut [0; 1]);
                assert!(!matches!(read, Ok(1)), "nobody was told anything");
                read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
            });
            std::thread::yield_now();
        }
        drop(silent);
        echo(&mut stream, b"still here");
    });
}

#[test]
fn a_handshake_that_trickles_is_ended_by_its_deadline() {
    let limits = ListenerLimits { handshake: Span::from_ms(300), ..ListenerLimits::default() };
    with_agent(limits, |_, agent, events| {
        let mut slow = TcpStream::connect(agent.addresses[0]).unwrap();
        let mut reader = slow.try_clone().unwrap();
        // A TLS record that announces 512 bytes, which come one at a time, paced by the agent's silence.
        slow.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc]).unwrap();
        reader.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let reason = loop {
            let _paced = reader.read(&mut [0; 1]);
            let written = slow.write_all(&[0]);
            if let Ok(ListenerEvent::Failed { reason, .. }) = events.try_recv() {
                break reason;
            }
            if written.is_err() {
                break event(events, |event| match event {
                    ListenerEvent::Failed { reason, .. } => Some(reason.clone()),
                    _ => None,
                });
            }
        };
        assert!(reason.contains("time"), "{reason}");
    });
}

#[test]
fn noise_on_the_port_is_refused_and_forgotten() {
    let limits = ListenerLimits {
        handshake: Span::from_secs(2),
        pending_per_address: 32,
        ..ListenerLimits::default()
    };
    with_agent(limits, |listener, agent, _| {
        let seed = Seed(0x6e6f_6973);
        println!("seed {seed:?}");
        let mut random = seed.stream("noise");
        for _ in 0..300 {
            let mut stream = TcpStream::connect(agent.addresses[0]).unwrap();
            let mut bytes: Vec<u8> =
                (0..random.random_range(1..600)).map(|_| random.random()).collect();
            if random.random() {
                // Looks like a handshake record.
                let plausible = [0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
                bytes.splice(0..0, plausible);
            }
            stream.write_all(&bytes).ok();
            stream.shutdown(std::net::Shutdown::Write).ok();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut answer = Vec::new();
            stream.take(10_000).read_to_end(&mut answer).ok();
            assert!(answer.len() < 1_000, "an alert at most");
        }
        let client = paired(listener, agent);
        echo(&mut client.connect(agent).unwrap(), b"fine");
    });
}

#[test]
fn sessions_are_limited_and_the_limit_is_named() {
    let limits = ListenerLimits { sessions: 3, sessions_per_peer: 2, ..ListenerLimits::default() };
    with_agent(limits, |listener, agent, events| {
        let [one, other] = [paired(listener, agent), paired(listener, agent)];
        let mut first = one.connect(agent).unwrap();
        let second = one.connect(agent).unwrap();
        assert_eq!(refusal(one.connect(agent)), AdmissionRefusal::BusyWithPeer { limit: 2 });
        let third = other.connect(agent).unwrap();
        assert_eq!(refusal(other.connect(agent)), AdmissionRefusal::Busy { limit: 3 });
        echo(&mut first, b"undisturbed");
        second.close();
        third.close();
        for _ in 0..2 {
            event(events, |event| matches!(event, ListenerEvent::Ended { .. }).then_some(()));
        }
    });
}

#[test]
fn two_threads_read_and_write_one_session_at_once() {
    with_agent(ListenerLimits::default(), |listener, agent, _| {
        let client = paired(listener, agent);
        let (mut reader, mut writer, closer) = client.connect(agent).unwrap().split().unwrap();
        // Far more than the kernel and the encryption hold: whoever waits for the other stands still.
        let bytes: Vec<u8> = (0..8_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
        let expected = bytes.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&bytes).unwrap();
            writer.flush().unwrap();
            writer
        });
        let mut back = vec![0; expected.len()];
        reader.read_exact(&mut back).unwrap();
        assert!(back == expected, "every byte comes back in its place");
        drop(writing.join().unwrap());
        closer.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(!matches!(reader.read(&mut [0]), Ok(1..)), "nothing after the end");
    });
}
