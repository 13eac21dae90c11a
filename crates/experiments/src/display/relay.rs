//! A client whose bytes go through another process to the network, as through a TELNET server, and which of the two runs first.
//!
//! After Lantz, Nowicki & Theimer (1985, §6.2, Table 6-1). Client and relay share a CPU; the display has another. Priority is given by
//! raising the other's nice value by 10, which needs no privilege.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use plumb_display::server::DisplayLimits;
use plumb_harness::program_task::{hold_thread_back, raw_terminal};

use super::connection::{DisplayStream, display_thread, serve};
use super::local_path::AnyTransport;

/// Bytes that the relay reads at once: what a terminal holds.
const READ: usize = 4 << 10;
/// Between two looks of a relay that polls its terminal.
const POLL: Duration = Duration::from_micros(100);

/// How a relay runs beside its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayMode {
    /// With the same priority.
    Equal,
    /// Before it: the client is held back.
    RelayFirst,
    /// After it: the relay is held back.
    ClientFirst,
    /// With the same priority, and it polls its terminal instead of being woken.
    Polling,
    /// With the same priority, at a pseudoterminal: a TELNET server.
    Terminal,
}

impl RelayMode {
    /// The mode of a path's name; none of other paths.
    pub fn of_path(name: &str) -> Option<Self> {
        match name {
            "relay" => Some(Self::Equal),
            "relay-first" => Some(Self::RelayFirst),
            "client-first" => Some(Self::ClientFirst),
            "relay-polling" => Some(Self::Polling),
            "relay-terminal" => Some(Self::Terminal),
            _ => None,
        }
    }

    /// Whether the client is held back.
    pub fn holds_client_back(self) -> bool {
        self == Self::RelayFirst
    }

    /// A display of its own behind a relay that runs where the calling thread does, and how often that writes to the display; both end
    /// with the connection.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open(
        self,
        limits: DisplayLimits,
        cpu: Option<u32>,
    ) -> io::Result<(AnyTransport, Arc<AtomicU64>)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let far = DisplayStream::of_tcp(listener.accept()?.0)?;
        near.set_nodelay(true)?;
        display_thread(cpu, move || serve(far, limits, None).1)?;
        let (is_held_back, is_polling) = (self == Self::ClientFirst, self == Self::Polling);
        let writes = Arc::new(AtomicU64::new(0));
        let network = CountingWriter { stream: near.try_clone()?, writes: Arc::clone(&writes) };
        if self == Self::Terminal {
            let (emulator, program) = raw_terminal()?;
            let output = emulator.try_clone()?;
            relay_thread(is_held_back, emulator, network, CountingWriter::finish)?;
            relay_thread(is_held_back, near, output, drop)?;
            return Ok((AnyTransport::socket(DisplayStream::Terminal(program)), writes));
        }
        let (client, relay) = UnixStream::pair()?;
        let output = relay.try_clone()?;
        // Of both directions, which share the socket.
        relay.set_nonblocking(is_polling)?;
        relay_thread(is_held_back, relay, network, CountingWriter::finish)?;
        let end = |terminal: UnixStream| drop(terminal.shutdown(Shutdown::Write));
        relay_thread(is_held_back, near, output, end)?;
        Ok((AnyTransport::socket(DisplayStream::of_unix(client)?), writes))
    }
}

/// Copies one direction, and ends it with what it is from.
fn relay_thread<W: io::Write + Send + 'static>(
    is_held_back: bool,
    mut from: impl io::Read + Send + 'static,
    mut to: W,
    end: impl FnOnce(W) + Send + 'static,
) -> io::Result<()> {
    let run = move || {
        // The other side's end is an error of a terminal.
        copy(is_held_back, &mut from, &mut to).ok();
        end(to);
    };
    thread::Builder::new().name("relay".to_owned()).spawn(run).map(drop)
}

/// Counts what is written.
struct CountingWriter {
    stream: TcpStream,
    writes: Arc<AtomicU64>,
}

impl CountingWriter {
    fn finish(self) {
        self.stream.shutdown(Shutdown::Write).ok();
    }
}

impl io::Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Copies until the end; what would block is tried again after a while.
fn copy(is_held_back: bool, from: &mut impl io::Read, to: &mut impl io::Write) -> io::Result<()> {
    if is_held_back {
        hold_thread_back()?;
    }
    let mut buffer = [0; READ];
    loop {
        let len = polled(|| from.read(&mut buffer))?;
        let mut rest = &buffer[..len];
        while !rest.is_empty() {
            let written = polled(|| to.write(rest))?;
            rest = &rest[written..];
        }
        if len == 0 {
            return Ok(());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a relay that polls is what is measured")]
fn polled(mut transfer: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match transfer() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(POLL),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_clock::Stopwatch;
    use plumb_display::transport::DisplayConnection;
    use plumb_display::workload::{DisplayDrawing, DisplayRate};

    use super::*;
    use crate::display::local_path::LocalPath;
    use crate::display::measure::DisplayPlan;

    #[test]
    fn what_is_drawn_through_a_relay_is_what_a_call_draws() {
        let plan = DisplayPlan::new(DisplayDrawing::FlatArray, DisplayRate::PipelinedIncremental);
        let drawn = |transport: io::Result<AnyTransport>| {
            let mut connection = DisplayConnection::open(transport.unwrap()).unwrap();
            plan.prepare(&mut connection).unwrap();
            plan.sample(&mut connection, Stopwatch::new(None), 0).unwrap()
        };
        let limits = DisplayLimits::default;
        let direct = drawn(LocalPath::Direct.open(limits(), None));
        for name in ["relay", "relay-first", "client-first", "relay-polling", "relay-terminal"] {
            let opened = RelayMode::of_path(name).unwrap().open(limits(), None);
            let (transport, writes) = opened.unwrap();
            let relayed = drawn(Ok(transport));
            assert!(writes.load(Ordering::Relaxed) > 0);
            assert_eq!(
                (relayed.checksum, relayed.bytes_sent),
                (direct.checksum, direct.bytes_sent)
            );
        }
    }
}
