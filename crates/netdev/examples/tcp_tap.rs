//! plumb's TCP on a TAP, with a Linux socket as its peer, in a test bed of its own: `cargo run -p plumb-netdev --example tcp_tap`.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example prints, and may give up")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use plumb_base::seed::Seed;
use plumb_netdev::device::Device as _;
use plumb_netdev::device::driver::{Driver, DriverOptions};
use plumb_netdev::device::tap::{TapDevice, TapOptions};
use plumb_netdev::host::{calibrated_clock, pool_for_device};
use plumb_netdev::lab::{TestBed, TestBedOptions};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{Received, TcpEvent};
use plumb_wire::ethernet::MacAddr;

fn main() {
    let bed = TestBed::tap(TestBedOptions::default()).unwrap();
    bed.add_tap().unwrap();
    bed.bring_up_near().unwrap();
    let open = || TapDevice::open(TestBed::NEAR_DEVICE, TapOptions::default());
    let device = bed.in_near(open).unwrap().unwrap();
    let linux = bed.in_near(|| TcpListener::bind((TestBed::NEAR_V4, 0))).unwrap().unwrap();
    let remote = linux.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = linux.accept().unwrap();
        let mut buffer = [0; 64];
        let len = stream.read(&mut buffer).unwrap();
        stream.write_all(&buffer[..len]).unwrap();
    });

    let capabilities = device.info().capabilities;
    let mut host = IpHost::new(HostConfig::default(), Seed(1));
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let interface =
        InterfaceConfig { capabilities, ..InterfaceConfig::ethernet(mac, capabilities.mtu) };
    host.add_interface(&interface.with_address(TestBed::FAR_V4, 24)).unwrap();
    let pool = pool_for_device(capabilities);
    let mut driver = Driver::new(vec![device], pool, calibrated_clock(), DriverOptions::default());
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let now = driver.read_clock();
    let id = host.tcp_connect(now, any, remote, TcpConfig::default(), &driver.pool).unwrap();
    loop {
        driver.run_once(&mut host).unwrap();
        let now = driver.now();
        while let Some(event) = host.poll_tcp_event() {
            let mut buffer = [0; 64];
            if let TcpEvent::Writable(id) = event {
                println!("open: {:?}", host.tcp_info(id).unwrap().srtt);
                host.tcp_send(now, id, b"hello over a TAP").unwrap();
            } else if let TcpEvent::Readable(id) = event
                && let Ok(Received::Data(len)) = host.tcp_receive(now, id, &mut buffer)
            {
                println!("received {:?}", String::from_utf8_lossy(&buffer[..len]));
                return;
            }
        }
        assert!(host.tcp_error(id).is_none(), "{:?}", host.tcp_error(id));
    }
}
