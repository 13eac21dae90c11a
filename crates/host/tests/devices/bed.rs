//! A bed with Linux at one end and a mirror on a device at the other, and what may go wrong in it.
//!
//! Left out: which device.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_host::device::{Device, DeviceCounters};
use plumb_host::lab::{Far, LabError, LinkOptions, TestBed};
use plumb_wire::packet::Pool;

use crate::mirror;

/// What `make` made; none, with a word about it, where this process may not.
pub fn allowed<T>(made: Result<T, LabError>) -> Option<T> {
    match made {
        Err(error @ LabError::NotPermitted { .. }) => {
            println!("skipped: {error}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI");
            None
        }
        made => Some(made.unwrap_or_else(|error| panic!("{error}"))),
    }
}

/// A bed whose far end is silent, with neighbours told.
pub fn silent(mtu: u32, offloads: bool) -> Option<TestBed> {
    allowed(TestBed::veth(Far::Silent, LinkOptions { mtu, offloads, neighbours: true }))
}

/// What a mirror left behind when it was stopped.
#[derive(Debug)]
pub struct Left {
    pub counters: DeviceCounters,
    pub frames_missing: usize,
}

/// A mirror in a thread of its own.
pub struct Mirror {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Left>,
}

impl Mirror {
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
            Left { counters: device.counters(), frames_missing: missing.saturating_sub(held) }
        });
        Self { stop, thread }
    }

    /// Stops it and says what it left.
    pub fn stop(self) -> Left {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A Linux socket at the near end, connected to the mirror.
pub fn client(bed: &TestBed, near: IpAddr, far: IpAddr) -> UdpSocket {
    let socket = bed.in_a(|| UdpSocket::bind(SocketAddr::new(near, 0)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.connect(SocketAddr::new(far, 7)).unwrap();
    socket
}

/// Asks the mirror until it answers: a link that has just come up drops the first datagrams until
/// the kernel has noticed its carrier.
pub fn wake(socket: &UdpSocket) {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let answered = (0..250).any(|number: u32| {
        socket.send(&number.to_le_bytes()).unwrap();
        socket.recv(&mut [0; 4]).is_ok()
    });
    assert!(answered, "the mirror answers within five seconds");
    while socket.recv(&mut [0; 4]).is_ok() {}
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
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
