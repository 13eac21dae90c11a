//! For tests: what stands between two sides in this process, and delays what passes or swallows it.
//!
//! Left out: order other than that of arrival, and rates.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use plumb_clock::{monotonic_ns, sleep_until};

/// After how long it looks what is due and whether it is to end: it delays by up to that much more.
const LOOK: Duration = Duration::from_millis(1);

/// Datagrams, between one client and one server.
#[derive(Debug)]
pub(crate) struct DelayingUdpRelay {
    /// Where the client finds the server.
    pub(crate) address: SocketAddr,
    /// Where the server finds the client.
    pub(crate) outer: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl DelayingUdpRelay {
    /// Delays each by `each_way_ns`, and swallows those towards the server for which `swallows` says so.
    pub(crate) fn before(
        server: SocketAddr,
        each_way_ns: u64,
        swallows: impl Fn(&[u8]) -> bool + Send + 'static,
    ) -> Self {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        far.connect(server).unwrap();
        let (address, outer) = (near.local_addr().unwrap(), far.local_addr().unwrap());
        let is_over = Arc::<AtomicBool>::default();
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(LOOK)).unwrap();
        }
        let (there, back) = (Arc::clone(&is_over), Arc::clone(&is_over));
        let (near_sending, far_sending) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let client = Arc::new(Mutex::new(None));
        let known = Arc::clone(&client);
        let from_client = move |buffer: &mut [u8]| {
            let (len, from) = near.recv_from(buffer)?;
            *known.lock().unwrap() = Some(from);
            Ok(len)
        };
        let to_server = move |bytes: &[u8]| drop(far_sending.send(bytes));
        let to_client = move |bytes: &[u8]| {
            if let Some(client) = *client.lock().unwrap() {
                near_sending.send_to(bytes, client).ok();
            }
        };
        thread::spawn(move || pass(&there, each_way_ns, swallows, from_client, to_server));
        let from_server = move |buffer: &mut [u8]| far.recv(buffer);
        thread::spawn(move || pass(&back, each_way_ns, |_| false, from_server, to_client));
        Self { address, outer, is_over }
    }
}

impl Drop for DelayingUdpRelay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn pass(
    is_over: &AtomicBool,
    delay_ns: u64,
    swallows: impl Fn(&[u8]) -> bool,
    mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    send: impl Fn(&[u8]),
) {
    let mut waiting = VecDeque::<(u64, Vec<u8>)>::new();
    let mut buffer = vec![0; 1 << 16];
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(len) = receive(&mut buffer)
            && !swallows(&buffer[..len])
        {
            waiting.push_back((monotonic_ns() + delay_ns, buffer[..len].to_vec()));
        }
        while waiting.front().is_some_and(|(due, _)| *due <= monotonic_ns()) {
            waiting.pop_front().iter().for_each(|(_, bytes)| send(bytes));
        }
    }
}

/// A connection's two ends, of which each reads what the other wrote `each_way_ns` later.
pub(crate) fn stream(each_way_ns: u64) -> (TcpStream, TcpStream) {
    let (near, inner) = connected();
    let (outer, far) = connected();
    for (from, to) in [(&inner, &outer), (&outer, &inner)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let (put, take) = std::sync::mpsc::channel::<(u64, Vec<u8>)>();
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(len @ 1..) = from.read(&mut buffer) {
                put.send((monotonic_ns() + each_way_ns, buffer[..len].to_vec())).ok();
            }
        });
        thread::spawn(move || {
            for (due, bytes) in take {
                sleep_until(due);
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            to.shutdown(Shutdown::Write).ok();
        });
    }
    (near, far)
}

/// Two ends of a connection that keeps nothing back.
pub(crate) fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
    }
    (near, far)
}
