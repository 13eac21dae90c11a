//! A listening agent in a process of its own, what it holds, and clients that know its key.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

use plumb_net::measure::test_run::TestPorts;
use plumb_net::measure::test_spec::TestSpec;
use plumb_remote::message::{
    Deframer, Message, ProtocolHello, REPORT_MAX, ReadyMessage, ServiceId, TaskRefusal,
    TaskRequest, WelcomeMessage, decode, encode, frame,
};
use plumb_remote::secure::admission::AdmissionRefusal;
use plumb_remote::secure::{
    AgentAddress, HostIdentity, PairingToken, PeerStore, SecureConnectError, SecureStream, connect,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::home::{KilledOnDrop, TestHome, assert_valid};
use crate::support::{PLUMB, wait_for};

/// A request for a test whose data goes wherever the agent is.
pub fn request(spec: &TestSpec) -> TaskRequest {
    TaskRequest { service: ServiceId::LOAD, payload: encode(spec), to: None }
}

/// The ports of a test that is ready.
pub fn ports(ready: &ReadyMessage) -> Vec<u16> {
    decode::<TestPorts>(&ready.payload).unwrap().ports
}

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessResources {
    pub threads: u64,
    pub descriptors: usize,
    /// The most memory it ever had.
    pub peak_kib: u64,
}

impl ProcessResources {
    /// None of a process that has ended.
    pub fn of(process: u32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let number = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse().ok()
        };
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?.count();
        Some(Self { threads: number("Threads:")?, descriptors, peak_kib: number("VmHWM:")? })
    }

    /// From now on, the most memory is that of later moments (proc_pid_clear_refs(5)).
    pub fn reset_peak(process: u32) {
        std::fs::write(format!("/proc/{process}/clear_refs"), "5").unwrap();
    }
}

/// The agent; ended when it is dropped.
pub struct AgentProcess {
    child: KilledOnDrop,
    pub address: SocketAddr,
    pub token: String,
    /// Where its key is, until it ends.
    _home: TempDir,
}

impl AgentProcess {
    /// One on loopback, pairing.
    pub fn start(words: &[&str]) -> Self {
        Self::at("127.0.0.1:0", words)
    }

    /// One at a place of the namespace that the calling thread is in.
    pub fn at(place: &str, words: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(PLUMB);
        command
            .args(["agent", "--listen", place, "--pair", "--json"])
            .args(words)
            .env("HOME", home.path())
            .env_remove("XDG_DATA_HOME")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let said = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>().next();
        let said = said.expect("the agent says where it listens").unwrap();
        assert_valid(&said, "plumb.agent/1");
        let text = |name: &str| said[name].as_str().unwrap().to_owned();
        Self {
            child: KilledOnDrop(child),
            address: text("address").parse().unwrap(),
            token: text("token"),
            _home: home,
        }
    }

    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    pub fn resources(&self) -> ProcessResources {
        ProcessResources::of(self.id()).expect("the agent is running")
    }

    pub fn is_running(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_none()
    }

    pub fn kill(&mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }

    /// A client that has paired with it.
    pub fn paired_client(&self) -> PairedClient {
        let place = tempfile::tempdir().unwrap();
        let identity = HostIdentity::open_or_create(place.path()).unwrap();
        let name = format!("here:{}", self.address.port());
        let friend = PairedClient {
            identity,
            agent: AgentAddress { name, addresses: vec![self.address] },
            place,
        };
        let token: PairingToken = self.token.parse().unwrap();
        connect::pair(&friend.identity, &friend.peers(), &friend.agent, "tester", &token).unwrap();
        friend
    }

    /// `plumb net tls:…` towards it by a host of the given home.
    pub fn host(&self) -> String {
        let (ip, port) = (self.address.ip(), self.address.port());
        match ip {
            IpAddr::V4(ip) => format!("{ip}:{port}"),
            IpAddr::V6(ip) => format!("[{ip}]:{port}"),
        }
    }

    /// Waits until it holds what it held.
    pub fn assert_resources_released(&self, as_before: ProcessResources) {
        let holds = || {
            let now = self.resources();
            now.threads <= as_before.threads && now.descriptors <= as_before.descriptors
        };
        wait_for(&format!("no more to be held than {as_before:?}"), holds);
    }
}

/// An agent, a home that has paired with it, and the name by which `plumb net` reaches it.
pub fn paired_home() -> (AgentProcess, TestHome, String) {
    let (daemon, bench) = (AgentProcess::start(&[]), TestHome::new());
    bench.stdout_of(&["net", &daemon.host(), "--pair", &daemon.token]);
    let host = format!("tls:{}", daemon.host());
    (daemon, bench, host)
}

/// A paired client that speaks the protocol by hand.
pub struct PairedClient {
    identity: HostIdentity,
    pub agent: AgentAddress,
    place: TempDir,
}

impl PairedClient {
    fn peers(&self) -> PeerStore {
        PeerStore::in_directory(self.place.path())
    }

    /// Waits while the agent has as many sessions of this client as it takes.
    pub fn connect(&self) -> SecureStream {
        let mut made = None;
        wait_for("a session is free", || {
            match connect::connect(&self.identity, &self.peers(), &self.agent) {
                Err(SecureConnectError::Refused(AdmissionRefusal::BusyWithPeer { .. })) => false,
                other => made.insert(other.unwrap()).peer().is_ok(),
            }
        });
        made.unwrap()
    }

    /// A session over an encrypted connection.
    pub fn open_session(&self) -> ControlSession {
        ControlSession { stream: self.connect(), deframer: Deframer::default() }
    }

    /// The same, greeted.
    pub fn negotiated_session(&self) -> ControlSession {
        let mut talk = self.open_session();
        talk.negotiate();
        talk
    }
}

/// Half of a conversation with an agent, message by message.
pub struct ControlSession {
    pub stream: SecureStream,
    deframer: Deframer,
}

impl ControlSession {
    /// False when the agent has gone.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    pub fn send_message(&mut self, message: &Message) -> bool {
        self.send(&frame(&message.encode()))
    }

    /// The next frame; none when the agent has gone.
    fn frame(&mut self) -> Option<Vec<u8>> {
        let mut piece = [0; 4096];
        loop {
            if let Some(frame) = self.deframer.next_frame(REPORT_MAX).unwrap() {
                return Some(frame.to_vec());
            }
            match self.stream.read(&mut piece) {
                Ok(len @ 1..) => self.deframer.push(&piece[..len]),
                _ => return None,
            }
        }
    }

    /// The next message that is no ping, which is answered.
    pub fn receive_message(&mut self) -> Option<Message> {
        loop {
            match Message::decode(&self.frame()?) {
                Some(Message::Ping(number)) => {
                    self.send_message(&Message::Pong(number));
                }
                message => return message,
            }
        }
    }

    pub fn negotiate(&mut self) -> WelcomeMessage {
        assert!(self.send(&frame(&ProtocolHello::of_this_program("tester").encode())));
        ProtocolHello::decode(&self.frame().unwrap()).unwrap();
        match self.receive_message() {
            Some(Message::Welcome(welcome)) => welcome,
            other => panic!("{other:?}"),
        }
    }

    /// Has a test made ready; waits while the agent runs as many as it does.
    pub fn request(&mut self, task: u32, spec: &TestSpec) -> ReadyMessage {
        let mut made = None;
        wait_for("a test is free", || {
            let request = request(spec);
            assert!(self.send_message(&Message::Request { task, request }));
            match self.receive_message() {
                Some(Message::Ready(ready)) => made.insert(ready).task == task,
                Some(Message::Refused(TaskRefusal::TestLimit { .. })) => false,
                other => panic!("{other:?}"),
            }
        });
        made.unwrap()
    }
}
