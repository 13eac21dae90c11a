//! A display reached by plumb's TCP in the client's process: a TAP, and the kernel's TCP at the display.
//!
//! After Lantz, Nowicki & Theimer (1985, §6.2), whose PUP and IKP were processes under UNIX, and whose IP was in the kernel.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::{fs, thread};

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_clock::{InstantClock, Stopwatch, monotonic_ns};
use plumb_display::server::DisplayLimits;
use plumb_display::transport::DisplayTransport;
use plumb_harness::report::LaunchFault;
use plumb_netdev::device::Device as _;
use plumb_netdev::device::driver::{Driver, DriverOptions};
use plumb_netdev::device::tap::TapDevice;
use plumb_netdev::lab::TestBed;
use plumb_stack::host::IpHost;
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{Received, TcpId};
use plumb_wire::packet::{Pool, PoolConfig};

use super::connection::{DisplayStream, display_thread, serve};
use crate::transfer::tap::{open_tap, tap_host};

/// Its name in results.
pub const PROCESS_TCP: &str = "process-tcp";
/// For how long threads of connections that have ended are waited for.
const ENDING: Span = Span::from_secs(2);

/// A connection of plumb's TCP, which works while its user does.
pub struct ProcessTcp {
    driver: Driver<TapDevice>,
    host: IpHost,
    id: TcpId,
    /// The namespace of the display's end.
    _bed: TestBed,
}

impl std::fmt::Debug for ProcessTcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessTcp").field("id", &self.id).finish_non_exhaustive()
    }
}

impl ProcessTcp {
    /// To a display of its own, in a thread on that CPU if one is named; it ends with the connection.
    ///
    /// # Errors
    /// This user may make no TAP; or the connection is not opened.
    pub fn open(
        limits: DisplayLimits,
        cpu: Option<u32>,
        (watch, seed): (Stopwatch, u64),
    ) -> Result<Self, LaunchFault> {
        let failed = |error: &dyn std::error::Error| LaunchFault::Failed(error.to_string());
        wait_until_alone();
        let (bed, tap) = open_tap()?;
        let listener = bed
            .in_near(|| TcpListener::bind((TestBed::NEAR_V4, 0)))
            .map_err(|error| failed(&error))?
            .map_err(|error| failed(&error))?;
        let to = listener.local_addr().map_err(|error| failed(&error))?;
        let (host, id, driver) = connect(tap, to, (watch, seed))?;
        let mut process = Self { driver, host, id, _bed: bed };
        process
            .turn_until(|host, id, _| {
                host.tcp_info(id).is_none_or(|info| info.state.is_synchronized())
            })
            .map_err(|error| failed(&error))?;
        if process.host.tcp_info(process.id).is_none() {
            return Err(LaunchFault::Failed("the connection was not opened".to_owned()));
        }
        let (far, _) = listener.accept().map_err(|error| failed(&error))?;
        let far = DisplayStream::of_tcp(far).map_err(|error| failed(&error))?;
        display_thread(cpu, move || serve(far, limits, None).1).map_err(|error| failed(&error))?;
        Ok(process)
    }

    /// Lets the stack work until something is so.
    fn turn_until(
        &mut self,
        mut is_so: impl FnMut(&mut IpHost, TcpId, Instant) -> bool,
    ) -> io::Result<()> {
        let id = self.id;
        let until = |host: &mut IpHost, now, _: &mut Pool| {
            while host.poll_tcp_event().is_some() {}
            is_so(host, id, now)
        };
        self.driver.read_clock();
        self.driver.run(&mut self.host, until).map(drop).map_err(io::Error::other)
    }
}

/// A host at the TAP that has begun to open a connection.
fn connect(
    tap: TapDevice,
    to: SocketAddr,
    (watch, seed): (Stopwatch, u64),
) -> Result<(IpHost, TcpId, Driver<TapDevice>), LaunchFault> {
    let fault = |error: &dyn std::error::Error| LaunchFault::Failed(error.to_string());
    let mut host = tap_host(tap.info().capabilities, Seed(seed))?;
    let pool = Pool::new(PoolConfig { count: 1_024, size: 2_048, large: 8 });
    let clock = InstantClock::begin(watch);
    let mut driver = Driver::new(vec![tap], pool, clock, DriverOptions::default());
    // As the kernel's of other paths: each end says when it has something to send.
    let config = TcpConfig { nagle: false, ..TcpConfig::default() };
    let any = SocketAddr::from((TestBed::FAR_V4, 0));
    let now = driver.read_clock();
    let id = host.tcp_connect(now, any, to, config, &driver.pool).map_err(|error| fault(&error))?;
    Ok((host, id, driver))
}

/// Only a process of one thread may make a user namespace.
fn wait_until_alone() {
    let threads = || fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    let give_up = monotonic_ns() + ENDING.as_ns();
    while threads() > 1 && monotonic_ns() < give_up {
        thread::yield_now();
    }
}

impl DisplayTransport for ProcessTcp {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut rest, mut ended) = (bytes, Ok(()));
        self.turn_until(|host, id, now| {
            while !rest.is_empty() {
                match host.tcp_send(now, id, rest) {
                    Ok(0) => return false,
                    Ok(taken) => rest = &rest[taken..],
                    Err(error) => {
                        ended = Err(io::Error::other(error));
                        return true;
                    }
                }
            }
            true
        })?;
        ended
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let mut ended = Ok(());
        self.turn_until(|host, id, now| {
            let read = |data: &[u8]| {
                bytes.extend_from_slice(data);
                data.len()
            };
            match host.tcp_receive_with(now, id, read) {
                Ok(Received::Data(_)) => true,
                Ok(Received::Empty) => false,
                Ok(Received::End) | Err(_) => {
                    ended = Err(io::ErrorKind::UnexpectedEof.into());
                    true
                }
            }
        })?;
        ended
    }
}

impl Drop for ProcessTcp {
    fn drop(&mut self) {
        // Its reset reaches the display, which ends.
        let (id, now) = (self.id, self.driver.read_clock());
        self.host.tcp_abort(now, id);
        self.driver.run(&mut self.host, |_, _, _| true).ok();
    }
}
