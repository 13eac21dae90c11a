//! A bed with Linux at one end and a mirror on a device at the other, and what may go wrong in it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plumb_base::time::{Instant, Span};
use plumb_clock::monotonic_ns;
use plumb_netdev::device::{Device, DeviceCounters, DeviceError};
use plumb_netdev::lab::{FarEndMode, TestBed, TestBedOptions};
use plumb_wire::packet::Pool;

use crate::allowed::allowed;
use crate::mirror;

/// A bed whose far end is silent, with neighbours told.
pub fn silent(mtu: u32, offloads: bool) -> Option<TestBed> {
    allowed(TestBed::veth(FarEndMode::Silent, TestBedOptions { mtu, offloads, neighbors: true }))
}

/// Longest time that anything here is waited for.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something is so.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = monotonic_ns() + u64::try_from(PATIENCE.as_nanos()).unwrap();
    while !is_so() {
        assert!(monotonic_ns() < end, "waited in vain for {what}");
    }
}

/// While this is held no process is started here: until one runs its own program it holds every
/// descriptor of this process, and so every device that is closed meanwhile.
pub fn hold_process_starts() -> MutexGuard<'static, ()> {
    static STARTING: Mutex<()> = Mutex::new(());
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process; it runs its own program when this returns.
pub fn start(command: &mut Command) -> Child {
    let _alone = hold_process_starts();
    command.spawn().unwrap()
}

/// Takes whatever comes until nothing does for a moment.
pub fn drain(device: &mut impl Device, pool: &mut Pool) {
    let mut batch = Vec::new();
    wait_for("a device to be quiet", || {
        let is_quiet = !device.wait(Some(Span::from_ms(1)), pool).unwrap();
        device.receive(Instant::ORIGIN, &mut batch, 64, pool).unwrap();
        pool.free_all(&mut batch);
        is_quiet
    });
}

/// What a mirror left behind when it was stopped.
#[derive(Debug)]
pub struct MirrorOutcome {
    pub counters: DeviceCounters,
    pub frames_missing: usize,
}

/// A mirror in a thread of its own.
pub struct MirrorThread {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<MirrorOutcome>,
}

impl MirrorThread {
    /// Mirrors until it is stopped; `held` frames may be with the device then.
    pub fn start<D: Device + Send + 'static>(mut device: D, mut pool: Pool, held: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut batch = Vec::with_capacity(64);
            while !stopped.load(Ordering::Relaxed) {
                mirror::turn(&mut device, &mut pool, &mut batch, 64).unwrap();
            }
            let frames = pool.frames();
            let (free, large) = pool.available();
            let missing = frames.count as usize + frames.large as usize - free - large;
            MirrorOutcome {
                counters: device.counters(),
                frames_missing: missing.saturating_sub(held),
            }
        });
        Self { stop, thread }
    }

    /// Stops it and says what it left.
    pub fn stop(self) -> MirrorOutcome {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A Linux socket at the near end, connected to the mirror.
pub fn client(bed: &TestBed, near: IpAddr, far: IpAddr) -> UdpSocket {
    let socket = bed.in_near(|| UdpSocket::bind(SocketAddr::new(near, 0)).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(SocketAddr::new(far, 7)).unwrap();
    socket
}

/// A client of a mirror that answers: a link that has just come up drops the first datagrams until
/// the kernel has noticed its carrier.
pub fn client_after_first_answer(bed: &TestBed, near: IpAddr, far: IpAddr) -> UdpSocket {
    // By a socket of its own, at which late answers may come.
    let first = client(bed, near, far);
    first.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    wait_for("the mirror's first answer", || {
        first.send(b"anybody?").unwrap();
        first.recv(&mut [0; 8]).is_ok()
    });
    client(bed, near, far)
}

/// The same of version 4.
pub fn client_v4_after_first_answer(bed: &TestBed) -> UdpSocket {
    client_after_first_answer(bed, TestBed::NEAR_V4.into(), TestBed::FAR_V4.into())
}

/// Exchanges datagrams of several lengths with a mirror in every family, and stops it.
pub fn exchange_in_every_family(bed: &TestBed, mirror: MirrorThread) -> DeviceCounters {
    for (near, far, _) in bed.addresses() {
        let socket = client_after_first_answer(bed, near, far);
        for len in [0, 1, 18, 1_452] {
            exchange(&socket, len, 100);
        }
    }
    let left = mirror.stop();
    assert_eq!(left.frames_missing, 0);
    let DeviceCounters { tx_packets, tx_dropped, rx_malformed, .. } = left.counters;
    assert!(tx_packets >= 800, "{left:?}");
    assert_eq!((tx_dropped, rx_malformed), (0, 0), "{left:?}");
    left.counters
}

/// What ends the waiting of a device whose interface was removed: a ring that still holds a packet is ready whatever
/// becomes of its interface.
pub fn end_of_removed(
    device: &mut impl Device,
    pool: &mut Pool,
    timeout: Option<Span>,
) -> Option<DeviceError> {
    let mut batch = Vec::new();
    (0..100).find_map(|_| {
        let gone = device.wait(timeout, pool).err();
        device.receive(Instant::ORIGIN, &mut batch, 32, pool).ok();
        pool.free_all(&mut batch);
        gone
    })
}

/// Sends `count` datagrams of `len` bytes one at a time; each must come back as it was.
pub fn exchange(socket: &UdpSocket, len: usize, count: u32) {
    let mut sent: Vec<u8> = (0..len).map(|index| u8::try_from(index % 251).unwrap()).collect();
    let mut got = vec![0; len + 1];
    for number in 0..count {
        for (to, from) in sent.iter_mut().zip(number.to_le_bytes()) {
            *to = from;
        }
        socket.send(&sent).unwrap();
        let received = socket.recv(&mut got).unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(&got[..received], &sent[..], "datagram {number}");
    }
}
