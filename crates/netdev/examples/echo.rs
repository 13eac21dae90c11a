//! Round trips between a Linux UDP socket and a mirror of frames on each device, in a test bed that
//! it makes: a comparison of devices without any stack between. `cargo run --release --example echo`.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example prints, and may give up")]

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plumb_base::time::Span;
use plumb_netdev::device::packet::{PacketDevice, PacketOptions, PacketReceiveMode};
use plumb_netdev::device::xdp::{XdpAttachMode, XdpDevice, XdpOptions};
use plumb_netdev::device::{Device, DeviceWait};
use plumb_netdev::lab::{FarEndMode, TestBed, TestBedOptions};
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::sched;
use plumb_wire::packet::{Pool, PoolConfig};

#[path = "../tests/devices/mirror.rs"]
mod mirror;

const ROUNDS: usize = 20_000;

fn main() {
    for (client_spins, cpus) in [(false, (0, 0)), (true, (0, 1))] {
        let wait = if client_spins { DeviceWait::Spin } else { DeviceWait::Block };
        println!("{}", if client_spins { "both spin, CPU 0 and 1" } else { "both block, CPU 0" });
        for offloads in [true, false] {
            let linux = bed(FarEndMode::Answers, offloads);
            let socket = linux.in_far(|| UdpSocket::bind((TestBed::FAR_V4, 7)).unwrap()).unwrap();
            socket.set_nonblocking(client_spins).unwrap();
            measure(
                &linux,
                &format!("Linux, offloads {offloads}"),
                client_spins,
                cpus,
                move |stop| {
                    let mut buffer = [0; 2_048];
                    while !stop.load(Ordering::Relaxed) {
                        if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                            socket.send_to(&buffer[..len], from).unwrap();
                        }
                    }
                },
            );
        }
        for receive in [PacketReceiveMode::Calls, PacketReceiveMode::Ring] {
            if client_spins && receive == PacketReceiveMode::Calls {
                continue;
            }
            for bypass in [true, false] {
                let bed = bed(FarEndMode::Silent, true);
                let options =
                    PacketOptions { wait, receive: Some(receive), bypass, ..Default::default() };
                let device = bed
                    .in_far(|| PacketDevice::open(TestBed::FAR_DEVICE, &options))
                    .unwrap()
                    .unwrap();
                let name = format!("packet {receive:?}, bypass {bypass}");
                let pool = Pool::new(PoolConfig::default());
                measure(&bed, &name, client_spins, cpus, move |stop| run(device, pool, stop));
            }
        }
        for mode in [XdpAttachMode::Native, XdpAttachMode::Generic] {
            let bed = bed(FarEndMode::Silent, false);
            let options = XdpOptions { wait, mode: Some(mode), ..Default::default() };
            let (device, pool) =
                bed.in_far(|| XdpDevice::open(TestBed::FAR_DEVICE, &options)).unwrap().unwrap();
            let name = format!("xdp {mode:?}, {:?}", device.copying);
            measure(&bed, &name, client_spins, cpus, move |stop| run(device, pool, stop));
        }
    }
}

fn bed(far: FarEndMode, offloads: bool) -> TestBed {
    let options = TestBedOptions { offloads, neighbors: true, ..TestBedOptions::default() };
    TestBed::veth(far, options).unwrap()
}

fn run(mut device: impl Device, mut pool: Pool, stop: &AtomicBool) {
    let mut batch = Vec::with_capacity(64);
    while !stop.load(Ordering::Relaxed) {
        mirror::turn(&mut device, &mut pool, &mut batch, 64).unwrap();
    }
}

/// Times round trips of frames of 60 and 1514 bytes to `far`, which runs in a thread of its own.
fn measure(
    bed: &TestBed,
    name: &str,
    spins: bool,
    (near_cpu, far_cpu): (u32, u32),
    far: impl FnOnce(&AtomicBool) + Send + 'static,
) {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        sched::bind(&[far_cpu]).unwrap();
        far(&stopped);
    });
    sched::bind(&[near_cpu]).unwrap();
    let socket = bed.in_near(|| UdpSocket::bind((TestBed::NEAR_V4, 0)).unwrap()).unwrap();
    socket.connect((TestBed::FAR_V4, 7)).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    while socket.send(b"wake").is_ok() && socket.recv(&mut [0; 4]).is_err() {}
    while socket.recv(&mut [0; 4]).is_ok() {}
    socket.set_read_timeout(None).unwrap();
    socket.set_nonblocking(spins).unwrap();
    for payload in [18, 1_472] {
        let sent = vec![7; payload];
        let mut got = vec![0; payload];
        let mut times: Vec<u64> = (0..ROUNDS)
            .map(|_| {
                let start = read_ns(ClockId::Monotonic);
                socket.send(&sent).unwrap();
                while socket.recv(&mut got).is_err() {}
                read_ns(ClockId::Monotonic) - start
            })
            .collect();
        times.sort_unstable();
        let at = |part: usize| Span::from_ns(times[ROUNDS * part / 100]).as_ns_f64() / 1e3;
        println!(
            "  {name:32} {:4} B  median {:6.2} µs  5 % {:6.2}  95 % {:6.2}",
            payload + 42,
            at(50),
            at(5),
            at(95)
        );
    }
    stop.store(true, Ordering::Relaxed);
    // A thread that blocks needs one more message to notice.
    let _ = socket.send(b"stop");
    thread.join().unwrap();
}
