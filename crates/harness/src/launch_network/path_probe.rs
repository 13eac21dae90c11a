//! Whether messages of a size cross a path at all, and in how many packets.
//!
//! Both ends are this process's own: whatever hangs in a network that swallows packets is given up after
//! its time, sockets and all. Nothing is timed.

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd;

use plumb_base::time::Span;
use plumb_clock::{Stopwatch, monotonic_ns};
use plumb_sys::socket::{self, IntOption};

use super::LaunchNetwork;
use crate::channel::IoResultExt as _;
use crate::effort::{Canary, CpuReading};
use crate::launch_protocol;
use crate::mechanisms::{connect, connect_datagrams};
use crate::report::{BlockError, BlockReport, LaunchFault, summarize};
use crate::spec::{BlockSpec, BlockTask, LaunchSpec, LaunchSubject, RemoteSpec};

/// Messages tried in a block: enough to see whether any gets through at all.
const TRIED_MAX: usize = 100;
/// Round trips of an attempt at most: a connection's own, and a message sent again in smaller pieces.
const ROUND_TRIPS: u64 = 6;
/// What an attempt may take beside: the shortest time after which Linux sends again, three times.
const TIMEOUT_MIN: Span = Span::from_ms(600);
/// How long one call waits; what is left of an attempt is looked at between.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);
/// IP_MTU_DISCOVER: don't-fragment clear (ip(7)).
const PMTUDISC_DONT: i32 = 0;

/// Measures a block if its task is one of these.
pub(crate) fn measure(
    site: &LaunchNetwork,
    launch: &LaunchSpec,
    spec: &BlockSpec,
) -> Result<Option<BlockReport>, BlockError> {
    let (size, over_tcp) = match spec.task {
        BlockTask::ConnectedShare { size } => (size, true),
        BlockTask::ReplyPackets { size } => (size, false),
        _ => return Ok(None),
    };
    let LaunchSubject::Remote(remote) = &launch.subject else {
        return Err(BlockError::Unavailable("there is no path to be crossed".to_owned()));
    };
    let watch = Stopwatch::new(launch.ticks_per_ns);
    let canary = Canary::before(watch, spec);
    let (cpu, begin) = (CpuReading::now(), monotonic_ns());
    let crossing = PathProbe::new(site, launch, remote, size)?;
    let end = begin + spec.duration_ns;
    let (values, lost) =
        if over_tcp { crossing.connections(end)? } else { crossing.count_packets(end)? };
    let mut report = BlockReport { batch: 1, ..BlockReport::default() };
    report.effort.local = CpuReading::now().since(cpu);
    report.effort.wall_ns = monotonic_ns() - begin;
    report.effort.operations = values.len() as u64;
    report.effort.canary_ns = canary.after();
    if lost > 0 {
        report.counters.insert("lost".to_owned(), lost);
    }
    summarize(&values, 1e-6, spec, &mut report);
    Ok(Some(report))
}

/// What every attempt needs.
struct PathProbe<'a> {
    site: &'a LaunchNetwork,
    /// Don't-fragment is clear on both ends.
    may_be_fragmented: bool,
    timeout: Span,
    message: Vec<u8>,
}

impl<'a> PathProbe<'a> {
    fn new(
        site: &'a LaunchNetwork,
        launch: &LaunchSpec,
        remote: &RemoteSpec,
        size: u64,
    ) -> Result<Self, BlockError> {
        let len = usize::try_from(size)?;
        let exchange = Span::from_ns(remote.path.exchange_ns(size, size));
        Ok(Self {
            site,
            may_be_fragmented: remote.channel.options.fragments == Some(true),
            timeout: exchange * ROUND_TRIPS + TIMEOUT_MIN,
            message: launch_protocol::payload_pattern(launch.seed, len).to_vec(),
        })
    }

    /// Whether the message and its answer cross on a new connection: 1 or 0 each; and how often not.
    fn connections(&self, end: u64) -> Result<(Vec<f64>, u64), BlockError> {
        let (mut values, mut lost) = (Vec::new(), 0);
        while values.is_empty() || (values.len() < TRIED_MAX && monotonic_ns() < end) {
            let crossed = self.connection()?;
            values.push(f64::from(u8::from(crossed)));
            lost += u64::from(!crossed);
        }
        Ok((values, lost))
    }

    fn connection(&self) -> Result<bool, LaunchFault> {
        let (near, far) = connect(&self.site.location, false, None)?;
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(POLL_INTERVAL)).attempt("set SO_RCVTIMEO")?;
            stream.set_nodelay(true).attempt("set TCP_NODELAY")?;
            self.allow_fragmentation(stream)?;
            // Without it the kernel would retransmit after the socket is closed.
            socket::reset_on_close(stream.as_fd()).attempt("set SO_LINGER")?;
        }
        let until = monotonic_ns() + self.timeout.as_ns();
        let crossed =
            self.transfer_tcp(&near, &far, until)? && self.transfer_tcp(&far, &near, until)?;
        Ok(crossed)
    }

    /// Whether the message gets from one to the other in time.
    fn transfer_tcp(
        &self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        until: u64,
    ) -> Result<bool, LaunchFault> {
        // The kernel has room for it: this waits for nobody.
        from.write_all(&self.message).attempt("send")?;
        let mut buffer = vec![0; self.message.len()];
        let mut done = 0;
        while done < buffer.len() {
            match to.read(&mut buffer[done..]) {
                Ok(0) => return Ok(false),
                Ok(len) => done += len,
                Err(error) if is_timeout(&error) && monotonic_ns() < until => {}
                Err(error) if is_timeout(&error) => return Ok(false),
                Err(source) => return Err(LaunchFault::failed("receive", source)),
            }
        }
        Ok(buffer == self.message)
    }

    /// In how many packets the answer to a datagram comes, by what the near device receives from one
    /// question to the next; and how many had none.
    fn count_packets(&self, end: u64) -> Result<(Vec<f64>, u64), BlockError> {
        let (near, far) = self.datagrams()?;
        let received = || {
            let nobody = || BlockError::Unavailable("the near device counts no packets".to_owned());
            self.site.packets_received().ok_or_else(nobody)
        };
        let (mut values, mut lost) = (Vec::new(), 0);
        let mut before = received()?;
        let mut tried = 0;
        while tried < 2 || (tried < TRIED_MAX && monotonic_ns() < end) {
            tried += 1;
            let until = monotonic_ns() + self.timeout.as_ns();
            let answered =
                self.transfer_udp(&near, &far, until)? && self.transfer_udp(&far, &near, until)?;
            // The device counts a packet when it has given it on.
            std::thread::yield_now();
            let now = received()?;
            if answered {
                values.push((now - before) as f64);
            } else {
                lost += 1;
            }
            before = now;
        }
        if values.is_empty() {
            return Err(BlockError::Unavailable(format!(
                "no datagram of {} bytes was answered: there are no packets to count",
                self.message.len()
            )));
        }
        Ok((values, lost))
    }

    fn datagrams(&self) -> Result<(UdpSocket, UdpSocket), LaunchFault> {
        let (near, far) = connect_datagrams(&self.site.location, false)?;
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(POLL_INTERVAL)).attempt("set SO_RCVTIMEO")?;
            self.allow_fragmentation(socket)?;
        }
        Ok((near, far))
    }

    /// Whether the message gets from one to the other in time. Another's error is a packet lost.
    fn transfer_udp(
        &self,
        from: &UdpSocket,
        to: &UdpSocket,
        until: u64,
    ) -> Result<bool, BlockError> {
        if from.send(&self.message).is_err() {
            return Ok(false);
        }
        let mut buffer = vec![0; self.message.len() + 1];
        loop {
            match to.recv(&mut buffer) {
                Ok(len) if buffer[..len] == self.message[..] => return Ok(true),
                Err(error) if !is_timeout(&error) => return Ok(false),
                Ok(_) | Err(_) => {}
            }
            if monotonic_ns() >= until {
                return Ok(false);
            }
        }
    }

    fn allow_fragmentation(&self, socket: &impl AsFd) -> Result<(), LaunchFault> {
        if !self.may_be_fragmented {
            // As Linux has it: set, and what a router says is obeyed.
            return Ok(());
        }
        socket::set_option(socket.as_fd(), IntOption::MtuDiscover, PMTUDISC_DONT)
            .attempt("set IP_MTU_DISCOVER")
    }
}

/// Whether a call has only waited for its time, or was interrupted.
fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
