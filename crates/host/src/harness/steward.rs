//! The steward: on another host, what starts the far process of a launch, and takes it along when it goes.
//!
//! It is this program again, started by whatever leads to that host, and speaks over its standard streams with the
//! worker alone. It opens the far ends of sockets, for who shows the launch's token; starts the peer, the sender or
//! the server as a worker would; and carries the words between them and the worker. Left out: how it is started,
//! and timing, which is the worker's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_sys::socket::{self, IntOption};
use plumb_sys::{affinity, signal};

use super::control::{Attach, Control, PeerToWorker};
use super::frame;
use super::partner::{Peer, Ties};
use super::streams::share::Share;
use super::streams::source::SourceToWorker;
use super::streams::{Source, prepare, seats, slowed};
use super::visits::{self, Server};
use crate::clock::calibrate;
use crate::environment;
use crate::local::{
    Attempt as _, Handover, OpenError, facts_of, set_datagram_options, set_options,
};

mod door;
pub mod reach;
pub(crate) mod word;

use word::{Ask, ChannelTask, Door, Presence, STEWARD, StreamsTask, Tell, VisitsTask, WORKER};

/// The hidden subcommand that runs it.
pub const WORD: &str = "__steward";

/// How long it may take to end by itself once the worker is gone.
const LEAVING: Span = Span::from_secs(2);
/// How long the worker's line, and its first words, are waited for.
const GREETING: Span = Span::from_secs(30);
/// How long calibrating this host's counter takes.
const CALIBRATION: Span = Span::from_ms(100);
/// What a worker has time for beside two blocks before it is thought to be gone.
const BESIDE: Span = Span::from_secs(30);
/// What a result must be read beside, of all that is known of this host.
const TOLD: [&str; 6] = [
    "cpu.hypervisor",
    "cpu.model",
    "kernel.release",
    "net.ipv4.tcp_congestion_control",
    "net.core.rmem_max",
    "net.core.wmem_max",
];

/// Runs it, of this version, on a host whose own addresses are told so; its exit code.
pub fn main(version: &str, addresses: fn() -> Vec<String>) -> u8 {
    match serve(version, addresses) {
        Ok(()) => 0,
        Err(error) => {
            // Who started it may read it; without anybody nobody does.
            drop(writeln!(io::stderr(), "{error}"));
            1
        }
    }
}

fn serve(version: &str, addresses: fn() -> Vec<String>) -> io::Result<()> {
    signal::ignore_keyboard_interrupt()?;
    let orders = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut answers = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    answers.write_all(word::line(STEWARD, version).as_bytes())?;
    if let Err(theirs) = word::hear_line(orders.as_fd(), WORKER, version, GREETING)? {
        return Err(io::Error::other(format!("this is plumb {version}, not {theirs}")));
    }
    frame::write(&mut answers, &presence(addresses)?)?;
    let (tell, events) = mpsc::channel();
    let is_left = Arc::new(AtomicBool::new(false));
    listen(orders, tell.clone(), Arc::clone(&is_left))?;
    let steward = Steward {
        answers,
        events,
        tell,
        is_left,
        ward: Ward::Nobody,
        guest: None,
        silence: GREETING,
    };
    steward.run()
}

fn presence(addresses: fn() -> Vec<String>) -> io::Result<Presence> {
    let mut facts = environment::capture();
    facts.retain(|name, _| TOLD.contains(&name.as_str()));
    Ok(Presence { facts, cpus: affinity::allowed_cpus()?, addresses: addresses() })
}

/// What happens to a steward.
enum Event {
    Asked(Ask),
    FromPeer(PeerToWorker),
    FromSource(SourceToWorker),
    /// Who it started is gone.
    Bereft,
    /// The worker is.
    Left,
}

/// Hears the worker in a thread of its own.
fn listen(mut orders: File, tell: Sender<Event>, is_left: Arc<AtomicBool>) -> io::Result<()> {
    let hear = move || {
        while let Ok(Some(ask)) = frame::read(&mut orders) {
            if tell.send(Event::Asked(ask)).is_err() {
                return;
            }
        }
        is_left.store(true, Relaxed);
        // Nobody hears it only when the process is about to end.
        drop(tell.send(Event::Left));
        plumb_sys::timer::sleep_ns(LEAVING.as_ns());
        // It still waits for who it started, or for somebody to read what it says. They die with it.
        signal::kill_self();
    };
    std::thread::Builder::new().name("orders".to_owned()).spawn(hear).map(drop)
}

/// Hears a process that was started in a thread of its own.
fn overhear<T: for<'de> serde::Deserialize<'de> + Send + 'static>(
    mut ear: Control,
    tell: Sender<Event>,
    event: fn(T) -> Event,
) -> io::Result<()> {
    let hear = move || {
        while let Ok(said) = ear.hear() {
            if tell.send(event(said)).is_err() {
                return;
            }
        }
        drop(tell.send(Event::Bereft));
    };
    std::thread::Builder::new().name("ear".to_owned()).spawn(hear).map(drop)
}

/// Who was started.
enum Ward {
    Nobody,
    Peer(Peer),
    Source {
        source: Source,
        /// CPUs of which a part is taken away while it sends, and how much is left.
        slowed: Vec<u32>,
        percent: u8,
        share: Option<Share>,
    },
    Server(Server),
}

struct Steward {
    answers: File,
    events: Receiver<Event>,
    /// For those who hear others.
    tell: Sender<Event>,
    is_left: Arc<AtomicBool>,
    ward: Ward,
    /// Who has shown a token last.
    guest: Option<SocketAddr>,
    /// How long the worker may say nothing.
    silence: Span,
}

impl Steward {
    /// Does what it is asked until the worker is gone, or silent for longer than any block lasts.
    fn run(mut self) -> io::Result<()> {
        loop {
            let silence = Duration::from_nanos(self.silence.as_ns());
            // Whoever was started dies with what is dropped here.
            let Ok(event) = self.events.recv_timeout(silence) else { return Ok(()) };
            match event {
                Event::Asked(ask) => self.obey(ask)?,
                Event::FromPeer(said) => self.say(&Tell::FromPeer(said))?,
                Event::FromSource(said) => self.say(&Tell::FromSource(said))?,
                Event::Bereft => {
                    return self
                        .say(&Tell::Failed("its process on the other host ended".to_owned()));
                }
                Event::Left => return Ok(()),
            }
        }
    }

    fn say(&mut self, tell: &Tell) -> io::Result<()> {
        frame::write(&mut self.answers, tell)
    }

    fn obey(&mut self, ask: Ask) -> io::Result<()> {
        let answer = match ask {
            Ask::Knock(door) => self.meet(&door).map(Tell::Met),
            Ask::Channel(task) => {
                self.expect(task.deadline_ns);
                self.open_channel(*task).map(Tell::Ready)
            }
            Ask::Streams(task) => {
                self.expect(task.deadline_ns);
                self.open_streams(&task).map(Tell::Ready)
            }
            Ask::Visits(task) => {
                self.expect(task.deadline_ns);
                self.open_visits(&task).map(Tell::Serving)
            }
            Ask::ToPeer(message) => {
                let Ward::Peer(peer) = &mut self.ward else { return Err(out_of_turn()) };
                return peer.say(*message);
            }
            Ask::ToSource(message) => {
                let Ward::Source { source, .. } = &mut self.ward else { return Err(out_of_turn()) };
                return source.say(message);
            }
            Ask::Steer(steer) => {
                let page = match &self.ward {
                    Ward::Peer(peer) => peer.page(),
                    _ => None,
                };
                page.ok_or_else(out_of_turn)?.steer(steer);
                Ok(Tell::Steered)
            }
            Ask::Share(is_taken) => self.share(is_taken).map(Tell::Shared),
            Ask::ServerCpu => {
                let Ward::Server(server) = &self.ward else { return Err(out_of_turn()) };
                server.cpu_ns().attempt("read the server's CPU clock").map(Tell::ServerCpu)
            }
        };
        self.say(&answer.unwrap_or_else(|error| match error {
            OpenError::Unavailable(reason) => Tell::Unavailable(reason),
            broken @ OpenError::Io { .. } => Tell::Failed(broken.to_string()),
        }))
    }

    fn expect(&mut self, deadline_ns: u64) {
        self.silence = Span::from_ns(deadline_ns) * 2 + BESIDE;
    }

    /// A listener for the worker, which is told its port.
    fn listener(&mut self, door: &Door) -> Result<TcpListener, OpenError> {
        let listener = door::bind(door.at, TcpListener::bind)?;
        let at = listener.local_addr().attempt("read the listener's address")?;
        self.say(&Tell::Listening(at.port())).attempt("answer the worker")?;
        Ok(listener)
    }

    fn meet(&mut self, door: &Door) -> Result<SocketAddr, OpenError> {
        let listener = self.listener(door)?;
        let streams = door::admit(&listener, &door.token, 1, &self.is_left)?;
        let stream = streams.first().ok_or_else(|| broken(out_of_turn()))?;
        let from = stream.peer_addr().attempt("read an address")?;
        self.guest = Some(from);
        Ok(from)
    }

    fn open_channel(&mut self, task: ChannelTask) -> Result<BTreeMap<String, String>, OpenError> {
        let ChannelTask { door, channel, cpu, seed, .. } = task;
        let options = &channel.options;
        let (fd, facts) = if channel.mechanism.is_lossy() {
            let socket = door::bind(door.at, UdpSocket::bind)?;
            let port = socket.local_addr().attempt("read an address")?.port();
            self.say(&Tell::Listening(port)).attempt("answer the worker")?;
            door::meet(&socket, &door.token, &self.is_left)?;
            let fd = OwnedFd::from(socket);
            set_datagram_options(options, &fd)?;
            let bytes = socket::option(fd.as_fd(), IntOption::ReceiveBuffer);
            let bytes = bytes.attempt("read SO_RCVBUF")?;
            (fd, vec![("rcvbuf", bytes.to_string())])
        } else {
            let listener = self.listener(&door)?;
            let streams = door::admit(&listener, &door.token, 1, &self.is_left)?;
            let stream = streams.into_iter().next().ok_or_else(|| broken(out_of_turn()))?;
            let fd = OwnedFd::from(stream);
            set_options(options, &fd)?;
            let facts = facts_of(&fd)?;
            (fd, facts)
        };
        let attach = Attach {
            channel,
            fds: Vec::new(),
            numbers: Vec::new(),
            page_fd: 0,
            cpu,
            ticks_per_ns: calibrate(CALIBRATION).ticks_per_ns,
            is_apart: true,
            seed,
        };
        let ties = Ties::new()?;
        let handover = Handover::of([fd]);
        let child = ties.start_peer(&handover)?;
        let peer = ties.hand_over(handover, child, attach)?;
        peer.ear()
            .and_then(|ear| overhear(ear, self.tell.clone(), Event::FromPeer))
            .map_err(broken)?;
        self.ward = Ward::Peer(peer);
        Ok(facts.into_iter().map(|(name, fact)| (format!("far_{name}"), fact)).collect())
    }

    fn open_streams(&mut self, task: &StreamsTask) -> Result<BTreeMap<String, String>, OpenError> {
        let spec = &task.streams;
        let allowed = affinity::allowed_cpus().attempt("read which CPUs may be used")?;
        let cpus = seats(spec, task.cpu, &allowed)?;
        let listener = self.listener(&task.door)?;
        let streams = door::admit(&listener, &task.door.token, spec.streams, &self.is_left)?;
        let mut facts = BTreeMap::new();
        for stream in &streams {
            prepare(spec, stream.as_fd())?;
            let bytes = socket::option(stream.as_fd(), IntOption::SendBuffer);
            facts.insert("sndbuf".to_owned(), bytes.attempt("read SO_SNDBUF")?.to_string());
            let name = socket::congestion(stream.as_fd()).attempt("read TCP_CONGESTION")?;
            facts.insert("far_congestion".to_owned(), name);
        }
        let slowed = slowed(spec, &cpus, &allowed);
        let far = streams.into_iter().map(OwnedFd::from).collect();
        let source = Source::start(far, cpus, spec.tweaks, task.seed)?;
        let ear = source.ear().and_then(|ear| overhear(ear, self.tell.clone(), Event::FromSource));
        ear.map_err(broken)?;
        self.ward = Ward::Source { source, slowed, percent: spec.cpu_percent, share: None };
        Ok(facts)
    }

    fn share(&mut self, is_taken: bool) -> Result<Result<(), String>, OpenError> {
        let Ward::Source { slowed, percent, share, .. } = &mut self.ward else {
            return Err(broken(out_of_turn()));
        };
        *share = None;
        if is_taken {
            match Share::leave(slowed, *percent) {
                Ok(taken) => *share = Some(taken),
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        Ok(Ok(()))
    }

    /// Serves the page to who has shown a token, and to nobody else.
    fn open_visits(&mut self, task: &VisitsTask) -> Result<SocketAddr, OpenError> {
        let guest = self.guest.ok_or_else(|| broken(out_of_turn()))?.ip();
        let start = |address| visits::start(address, task.cpu, Some(guest));
        let server = door::bind(task.at, start)?;
        let address = server.address;
        self.ward = Ward::Server(server);
        Ok(address)
    }
}

fn broken(source: io::Error) -> OpenError {
    OpenError::Io { what: "do it on the other host", source }
}

fn out_of_turn() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "asked out of turn")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A steward whose worker says nothing, and where it answers.
    fn waiting(silence: Span) -> (Steward, io::PipeReader) {
        let (answers, write) = io::pipe().unwrap();
        let (tell, events) = mpsc::channel();
        let steward = Steward {
            answers: File::from(OwnedFd::from(write)),
            events,
            tell,
            is_left: Arc::default(),
            ward: Ward::Nobody,
            guest: None,
            silence,
        };
        (steward, answers)
    }

    #[test]
    fn a_worker_that_is_silent_for_longer_than_any_block_lasts_is_not_waited_for() {
        // Its connection is open all the while, as that of a host that has vanished is.
        let (steward, _answers) = waiting(Span::from_ms(20));
        let (done, over) = mpsc::channel();
        std::thread::spawn(move || done.send(steward.run().is_ok()));
        assert_eq!(over.recv_timeout(Duration::from_mins(1)), Ok(true));
    }

    #[test]
    fn how_long_a_worker_may_be_silent_follows_from_how_long_its_blocks_may_last() {
        let (mut steward, _answers) = waiting(GREETING);
        steward.expect(Span::from_secs(40).as_ns());
        assert_eq!(steward.silence, Span::from_secs(110));
    }

    #[test]
    fn what_is_asked_before_anything_was_started_ends_the_session() {
        for ask in [Ask::ServerCpu, Ask::Share(true), Ask::Steer(word::Steer::Last(1))] {
            let (mut steward, answers) = waiting(GREETING);
            let outcome = steward.obey(ask);
            drop(steward);
            let said: Option<Tell> = frame::read(&mut File::from(OwnedFd::from(answers))).unwrap();
            assert!(outcome.is_err() || matches!(said, Some(Tell::Failed(_))), "{said:?}");
        }
    }
}
