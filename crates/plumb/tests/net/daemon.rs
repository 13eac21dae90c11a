//! A listening agent in a process of its own, what it holds, and clients that know its key.
//!
//! Left out: what is said to it.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};

use plumb_net::clock::{sleep_until, steady_ns};
use plumb_net::measure::spec::TestSpec;
use plumb_net::protocol::frame::{Deframer, frame};
use plumb_net::protocol::hello::Hello;
use plumb_net::protocol::message::{self, Message, REPORT_MAX, Ready, Welcome};
use plumb_net::secure::greeting::Refusal;
use plumb_net::secure::{ConnectError, Identity, Peers, Remote, SecureStream, Token, connect};
use serde_json::Value;
use tempfile::TempDir;

use crate::PLUMB;

/// Longest time that anything here is waited for.
pub const PATIENCE_NS: u64 = 60_000_000_000;

/// Waits until something is so; fails when it takes longer than anything does.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline_ns = steady_ns() + PATIENCE_NS;
    while !is_so() {
        assert!(steady_ns() < deadline_ns, "waited in vain until {what}");
        sleep_until(steady_ns() + 2_000_000);
    }
}

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    pub threads: u64,
    pub descriptors: usize,
    /// The most memory it ever had.
    pub peak_kib: u64,
}

impl Holding {
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
}

/// The agent; ended when it is dropped.
pub struct Daemon {
    child: Child,
    pub address: SocketAddr,
    pub token: String,
    /// Where its key is, until it ends.
    _home: TempDir,
}

impl Daemon {
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
        assert_eq!(crate::schema_faults("plumb.agent-1", &said), [] as [String; 0]);
        let text = |name: &str| said[name].as_str().unwrap().to_owned();
        Self { child, address: text("address").parse().unwrap(), token: text("token"), _home: home }
    }

    pub fn holding(&self) -> Holding {
        Holding::of(self.child.id()).expect("the agent is running")
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A client that has paired with it.
    pub fn friend(&self) -> Friend {
        let place = tempfile::tempdir().unwrap();
        let identity = Identity::open_or_create(place.path()).unwrap();
        let name = format!("here:{}", self.address.port());
        let friend =
            Friend { identity, agent: Remote { name, addresses: vec![self.address] }, place };
        let token: Token = self.token.parse().unwrap();
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
    pub fn settles(&self, as_before: Holding) {
        let holds = || {
            let now = self.holding();
            now.threads <= as_before.threads && now.descriptors <= as_before.descriptors
        };
        let deadline_ns = steady_ns() + PATIENCE_NS;
        while !holds() {
            assert!(steady_ns() < deadline_ns, "{:?}, before {as_before:?}", self.holding());
            sleep_until(steady_ns() + 10_000_000);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A paired client that speaks the protocol by hand.
pub struct Friend {
    identity: Identity,
    pub agent: Remote,
    place: TempDir,
}

impl Friend {
    fn peers(&self) -> Peers {
        Peers::in_directory(self.place.path())
    }

    /// Waits while the agent has as many sessions of this client as it takes.
    pub fn connect(&self) -> SecureStream {
        let mut made = None;
        until("a session is free", || {
            match connect::connect(&self.identity, &self.peers(), &self.agent) {
                Err(ConnectError::Refused(Refusal::BusyWithPeer { .. })) => false,
                other => made.insert(other.unwrap()).peer().is_ok(),
            }
        });
        made.unwrap()
    }

    /// A session over an encrypted connection.
    pub fn talk(&self) -> Talk {
        Talk { stream: self.connect(), deframer: Deframer::default() }
    }

    /// The same, greeted.
    pub fn greeted(&self) -> Talk {
        let mut talk = self.talk();
        talk.greet();
        talk
    }
}

/// Half of a conversation with an agent, message by message.
pub struct Talk {
    pub stream: SecureStream,
    deframer: Deframer,
}

impl Talk {
    /// False when the agent has gone.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    pub fn say(&mut self, message: &Message) -> bool {
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
    pub fn hear(&mut self) -> Option<Message> {
        loop {
            match Message::decode(&self.frame()?) {
                Some(Message::Ping(number)) => drop(self.say(&Message::Pong(number))),
                message => return message,
            }
        }
    }

    pub fn greet(&mut self) -> Welcome {
        assert!(self.send(&frame(&Hello::of_this_program("tester").encode())));
        Hello::decode(&self.frame().unwrap()).unwrap();
        match self.hear() {
            Some(Message::Welcome(welcome)) => welcome,
            other => panic!("{other:?}"),
        }
    }

    /// Has a test made ready; waits while the agent runs as many as it does.
    pub fn request(&mut self, test: u32, spec: &TestSpec) -> Ready {
        let mut made = None;
        until("a test is free", || {
            assert!(self.say(&Message::Request { test, spec: Box::new(spec.clone()), to: None }));
            match self.hear() {
                Some(Message::Ready(ready)) => made.insert(ready).test == test,
                Some(Message::Refused(message::Refusal::Busy { .. })) => false,
                other => panic!("{other:?}"),
            }
        });
        made.unwrap()
    }
}
