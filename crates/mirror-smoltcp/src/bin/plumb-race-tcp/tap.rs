//! A stack on a TAP against Linux's sockets at its other side, and Linux against Linux over a veth: bulk either way, and exchanges.
//!
//! plumb leaves checksums and segmentation to the device; smoltcp can do neither, and sends complete frames.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_netdev::device::driver::{Driver, DriverOptions};
use plumb_netdev::device::tap::{TapDevice, TapOffload, TapOptions};
use plumb_netdev::device::{Device as _, DeviceError};
use plumb_netdev::host::{calibrated_clock, pool_for_device};
use plumb_netdev::lab::{FarEndMode, TestBed, TestBedOptions};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::service::{HostApplication, HostNode};
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{ListenerId, Received, TcpId, TcpState};
use plumb_sys::socket::InetSocketKind;
use plumb_sys::{fd, sched, socket};
use plumb_wire::packet::{Packet, Pool, PoolConfig};
use serde_json::{Value, json};
use smoltcp::phy;

use crate::smoltcp_host::{FrameRxToken, SmoltcpHost, capabilities};
use crate::{PORT, RaceOptions, RacedStack};

/// What Linux's application reads and writes at a time.
const CHUNK: usize = 128 << 10;
/// Bytes of a request, and of its response.
const REQUEST: usize = 64;
/// Time before figures count.
const WARM_UP: Span = Span::from_ms(200);

/// Who sends the bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkDirection {
    /// The stack, to Linux.
    Up,
    /// Linux, to the stack.
    Down,
}

/// A task of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StackTask {
    Bulk(BulkDirection),
    Exchange,
}

/// Bytes received so far.
type ByteCounter = Arc<AtomicU64>;

fn bed(stack: RacedStack) -> anyhow::Result<TestBed> {
    let options = TestBedOptions { neighbors: true, ..TestBedOptions::default() };
    Ok(match stack {
        RacedStack::Linux => TestBed::veth(FarEndMode::Answers, options)?,
        _ => TestBed::tap(options)?,
    })
}

/// Starts the stack's side on its CPU.
fn start(
    bed: &TestBed,
    task: StackTask,
    options: &RaceOptions,
    counter: &ByteCounter,
) -> anyhow::Result<()> {
    let (stack, cpu, counter) = (options.stack, options.cpus.1, Arc::clone(counter));
    if stack == RacedStack::Linux {
        let listener = bed.in_far(|| TcpListener::bind((TestBed::FAR_V4, PORT)))??;
        socket::set_congestion(listener.as_fd(), "cubic")?;
        run_on(cpu, move || linux(&listener.accept()?.0, task, &counter));
        return Ok(());
    }
    let offload = match stack {
        RacedStack::Plumb => TapOffload::Segments,
        _ => TapOffload::None,
    };
    let open =
        || TapDevice::open(TestBed::NEAR_DEVICE, TapOptions { offload, ..Default::default() });
    let tap = bed.in_near(open)??;
    bed.bring_up_near()?;
    if stack == RacedStack::Plumb {
        run_on(cpu, move || plumb(tap, task, counter));
    } else {
        let options = options.clone();
        run_on(cpu, move || smoltcp(tap, task, &options, &counter));
    }
    Ok(())
}

/// Runs one side on a CPU, until the process ends.
fn run_on(cpu: u32, side: impl FnOnce() -> anyhow::Result<()> + Send + 'static) {
    std::thread::spawn(move || {
        sched::bind(&[cpu]).expect("the CPU is allowed");
        // The other side's connection ends with this one.
        let _ = side();
    });
}

/// A bulk transfer of one connection, counted where it is received.
pub fn bulk(direction: BulkDirection, options: &RaceOptions) -> anyhow::Result<Value> {
    let (bed, counter) = (bed(options.stack)?, ByteCounter::default());
    start(&bed, StackTask::Bulk(direction), options, &counter)?;
    let opposite = match direction {
        BulkDirection::Up => BulkDirection::Down,
        BulkDirection::Down => BulkDirection::Up,
    };
    let stream = connect(&bed)?;
    let counted = Arc::clone(&counter);
    run_on(options.cpus.0, move || linux(&stream, StackTask::Bulk(opposite), &counted));
    let mut at = plumb_clock::monotonic_ns() + WARM_UP.as_ns();
    plumb_clock::sleep_until(at);
    let (first, begun) = (counter.load(Ordering::Relaxed), plumb_clock::monotonic_ns());
    at = begun + Span::from_secs_f64(options.seconds).as_ns();
    plumb_clock::sleep_until(at);
    let bytes = counter.load(Ordering::Relaxed) - first;
    let ns = plumb_clock::monotonic_ns() - begun;
    anyhow::ensure!(bytes > 0, "nothing was received");
    Ok(json!({ "bytes_per_second": bytes as f64 / (ns as f64 * 1e-9) }))
}

/// The same by iperf3 at both ends of a veth, as its receiver counts it.
pub fn iperf3(direction: BulkDirection, options: &RaceOptions) -> anyhow::Result<Value> {
    let bed = bed(RacedStack::Linux)?;
    let (address, port) = (TestBed::FAR_V4.to_string(), PORT.to_string());
    let command = |cpu: u32, words: &[&str]| {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string(), "iperf3", "-p", &port]).args(words);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut server = command(options.cpus.1, &["-s", "-1"]);
    let mut server = bed.in_far(|| server.stdout(Stdio::null()).spawn())?.context("iperf3")?;
    let seconds = options.seconds.ceil().to_string();
    let mut client =
        command(options.cpus.0, &["-c", &address, "-C", "cubic", "-J", "-t", &seconds]);
    if direction == BulkDirection::Up {
        client.arg("-R");
    }
    let deadline = plumb_clock::monotonic_ns() + Span::from_secs(5).as_ns();
    // The server listens a moment later; with -J a client that fails ends with 0.
    let rate = loop {
        let output = bed.in_near(|| client.output())??;
        let answer: Value = serde_json::from_slice(&output.stdout).context("iperf3's answer")?;
        match answer["end"]["sum_received"]["bits_per_second"].as_f64() {
            Some(rate) => break rate,
            None if plumb_clock::monotonic_ns() < deadline => {}
            None => anyhow::bail!("iperf3 gave no rate: {}", answer["error"]),
        }
    };
    server.kill()?;
    server.wait()?;
    Ok(json!({ "bytes_per_second": rate / 8.0 }))
}

/// Round trips of a request and its response, as Linux's client sees them.
pub fn exchange(options: &RaceOptions) -> anyhow::Result<Value> {
    let bed = bed(options.stack)?;
    start(&bed, StackTask::Exchange, options, &ByteCounter::default())?;
    let mut stream = connect(&bed)?;
    sched::bind(&[options.cpus.0])?;
    let (mut times, mut bytes) = (Vec::new(), [7; REQUEST]);
    let begun = plumb_clock::monotonic_ns();
    let (warm, end) = (
        begun + WARM_UP.as_ns(),
        begun + Span::from_secs_f64(options.seconds).as_ns() + WARM_UP.as_ns(),
    );
    loop {
        let sent = plumb_clock::monotonic_ns();
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        let now = plumb_clock::monotonic_ns();
        if sent > warm {
            times.push(now - sent);
        }
        if now > end {
            break;
        }
    }
    anyhow::ensure!(bytes == [7; REQUEST], "the response is the request");
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100];
    Ok(json!({ "p50_ns": at(50), "p99_ns": at(99), "exchanges": times.len() }))
}

/// Linux's client: the stack listens, perhaps a moment later.
fn connect(bed: &TestBed) -> anyhow::Result<TcpStream> {
    let to = SocketAddr::from((TestBed::FAR_V4, PORT));
    let deadline = plumb_clock::monotonic_ns() + Span::from_secs(5).as_ns();
    let attempt = || {
        let socket = socket::open(false, InetSocketKind::Stream)?;
        // Before it connects: a connection that began with bbr stays paced.
        socket::set_congestion(socket.as_fd(), "cubic")?;
        fd::set_nonblocking(socket.as_fd(), false)?;
        socket::connect(socket.as_fd(), to)?;
        io::Result::Ok(TcpStream::from(socket))
    };
    loop {
        match bed.in_near(attempt)? {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if plumb_clock::monotonic_ns() > deadline => {
                return Err(error).context("the stack does not answer");
            }
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Linux's side of a task.
fn linux(stream: &TcpStream, task: StackTask, counter: &ByteCounter) -> anyhow::Result<()> {
    let (mut stream, mut chunk) = (stream, vec![1; CHUNK]);
    stream.set_nodelay(true)?;
    loop {
        match task {
            StackTask::Bulk(BulkDirection::Up) => stream.write_all(&chunk)?,
            StackTask::Bulk(BulkDirection::Down) => match stream.read(&mut chunk)? {
                0 => return Ok(()),
                len => drop(counter.fetch_add(len as u64, Ordering::Relaxed)),
            },
            StackTask::Exchange => {
                stream.read_exact(&mut chunk[..REQUEST])?;
                stream.write_all(&chunk[..REQUEST])?;
            }
        }
    }
}

/// plumb's application: it reads and writes in the stack's buffers.
struct PlumbApplication {
    listener: ListenerId,
    connection: Option<TcpId>,
    task: StackTask,
    counter: ByteCounter,
}

impl HostApplication for PlumbApplication {
    fn handle(&mut self, now: Instant, host: &mut IpHost, _pool: &mut Pool) {
        if self.connection.is_none() {
            self.connection = host.tcp_accept(self.listener);
        }
        let Some(id) = self.connection else { return };
        while host.poll_tcp_event().is_some() {}
        if host.tcp_state(id) != Some(TcpState::Established) {
            return;
        }
        match self.task {
            StackTask::Bulk(BulkDirection::Up) => {
                while let Ok(1..) = host.tcp_send_with(now, id, CHUNK, |room| room.len()) {}
            }
            StackTask::Bulk(BulkDirection::Down) => {
                while let Ok(Received::Data(len)) = host.tcp_receive_with(now, id, <[u8]>::len) {
                    self.counter.fetch_add(len as u64, Ordering::Relaxed);
                }
            }
            StackTask::Exchange => {
                let mut request = [0; REQUEST];
                while let Ok(Received::Data(len)) = host.tcp_receive(now, id, &mut request) {
                    // The peer has one request under way: there is room for the response.
                    let _ = host.tcp_send(now, id, &request[..len]);
                }
            }
        }
    }
}

fn plumb(tap: TapDevice, task: StackTask, counter: ByteCounter) -> anyhow::Result<()> {
    let mut host = IpHost::new(HostConfig::default(), Seed(16));
    let interface = InterfaceConfig {
        capabilities: tap.info().capabilities,
        ..InterfaceConfig::ethernet(TestBed::FAR_MAC, 1_500)
    };
    host.add_interface(&interface.with_address(TestBed::FAR_V4, TestBed::PREFIX_LEN.0))?;
    let local = SocketAddr::from((TestBed::FAR_V4, PORT));
    let listener = host.tcp_listen(local, 1, TcpConfig { nagle: false, ..TcpConfig::default() })?;
    let application = PlumbApplication { listener, connection: None, task, counter };
    // As `plumb stack serve` drives it.
    let pool = pool_for_device(tap.info().capabilities);
    let options = DriverOptions { alarm: true, ..DriverOptions::default() };
    let mut driver = Driver::new(vec![tap], pool, calibrated_clock(), options);
    driver.run(&mut HostNode { host, application }, |_, _, _| false)?;
    Ok(())
}

/// A TAP as smoltcp sees it.
struct TapPort {
    tap: TapDevice,
    /// One for each direction: smoltcp may write a frame while it still reads another.
    pools: [Pool; 2],
    received: Vec<Packet>,
    frames: Vec<Packet>,
    failure: Option<DeviceError>,
}

/// The right to send one frame.
struct TapTxToken<'a>(
    &'a mut TapDevice,
    &'a mut Pool,
    &'a mut Vec<Packet>,
    &'a mut Option<DeviceError>,
);

impl phy::Device for TapPort {
    type RxToken<'a> = FrameRxToken<'a>;
    type TxToken<'a> = TapTxToken<'a>;

    fn receive(
        &mut self,
        _now: smoltcp::time::Instant,
    ) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let packet = self.received.last()?;
        let [rx, tx] = &mut self.pools;
        let sender = TapTxToken(&mut self.tap, tx, &mut self.frames, &mut self.failure);
        Some((FrameRxToken(rx.bytes(packet)), sender))
    }

    fn transmit(&mut self, _now: smoltcp::time::Instant) -> Option<Self::TxToken<'_>> {
        let [_, tx] = &mut self.pools;
        Some(TapTxToken(&mut self.tap, tx, &mut self.frames, &mut self.failure))
    }

    fn capabilities(&self) -> phy::DeviceCapabilities {
        capabilities(1_500)
    }
}

impl phy::TxToken for TapTxToken<'_> {
    fn consume<R, F>(self, len: usize, f: F) -> R
    where
        F: FnOnce(&mut [u8]) -> R,
    {
        let Self(tap, pool, frames, failure) = self;
        let mut packet = pool.allocate_for(len).expect("one frame is under way at a time");
        let result = f(pool.append(&mut packet, len).expect("allocated for this length"));
        frames.push(packet);
        if let Err(error) = tap.transmit(frames, pool) {
            *failure = Some(error);
        }
        result
    }
}

fn smoltcp(
    tap: TapDevice,
    task: StackTask,
    options: &RaceOptions,
    counter: &ByteCounter,
) -> anyhow::Result<()> {
    let frames = PoolConfig { count: 64, size: 2_048, large: 0 };
    let mut port = TapPort {
        tap,
        pools: [Pool::new(frames), Pool::new(frames)],
        received: Vec::with_capacity(1),
        frames: Vec::with_capacity(1),
        failure: None,
    };
    let site = (TestBed::FAR_MAC, TestBed::FAR_V4);
    let mut host = SmoltcpHost::new(site, options.buffer, &mut port);
    host.listen(PORT);
    let clock = plumb_clock::monotonic_ns();
    loop {
        let us = (plumb_clock::monotonic_ns() - clock) / 1_000;
        let now = smoltcp::time::Instant::from_micros(i64::try_from(us)?);
        if port.tap.receive(Instant::ORIGIN, &mut port.received, 1, &mut port.pools[0])? > 0 {
            host.receive(now, &mut port);
            port.pools[0].free_all(&mut port.received);
        }
        serve(&mut host, task, counter)?;
        host.send(now, &mut port);
        if let Some(error) = port.failure.take() {
            return Err(error.into());
        }
        let wait = host.wait(now).map(|wait| Span::from_us(wait.total_micros()));
        if wait != Some(Span::ZERO) {
            port.tap.wait(wait, &mut port.pools[0])?;
        }
    }
}

/// smoltcp's application.
fn serve(host: &mut SmoltcpHost, task: StackTask, counter: &ByteCounter) -> io::Result<()> {
    let socket = host.socket();
    match task {
        StackTask::Bulk(BulkDirection::Up) => {
            while socket.can_send() && socket.send(|room| (room.len(), room.len())).unwrap_or(0) > 0
            {
            }
        }
        StackTask::Bulk(BulkDirection::Down) => {
            while socket.can_recv() {
                let len = socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap_or(0);
                counter.fetch_add(len as u64, Ordering::Relaxed);
            }
        }
        StackTask::Exchange => {
            let mut request = [0; REQUEST];
            while socket.can_recv() {
                let len = socket.recv_slice(&mut request).map_err(io::Error::other)?;
                socket.send_slice(&request[..len]).map_err(io::Error::other)?;
            }
        }
    }
    Ok(())
}
