//! Two hosts in one process open a TCP connection and exchange a greeting, in virtual time: `cargo run -p plumb-stack --example tcp_memory`.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example prints, and may give up")]

use std::net::SocketAddr;

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{Received, TcpEvent};
use plumb_wire::machine::{Machine as _, PortId};
use plumb_wire::packet::{Pool, PoolConfig};

const PORT: PortId = PortId(0);

fn host(octet: u8) -> IpHost {
    let mut host = IpHost::new(HostConfig::default(), Seed(octet.into()));
    let interface = InterfaceConfig::ip(1_500).with_address([192, 0, 2, octet], 24);
    host.add_interface(&interface).unwrap();
    host
}

fn main() {
    let (mut client, mut server) = (host(1), host(2));
    let mut pool = Pool::new(PoolConfig::default());
    let mut now = Instant::after_origin(Span::from_secs(1));
    let remote = SocketAddr::from(([192, 0, 2, 2], 7));
    let listener = server.tcp_listen(remote, 8, TcpConfig::default()).unwrap();
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let id = client.tcp_connect(now, any, remote, TcpConfig::default(), &pool).unwrap();
    let mut batch = Vec::new();
    let mut buffer = [0; 64];
    loop {
        // Packets of each reach the other after a millisecond; who has a timer due handles it.
        client.poll_packets(now, PORT, &mut batch, 32, &mut pool);
        now += Span::from_ms(1);
        server.handle_packets(now, PORT, &mut batch, &mut pool);
        server.handle_deadline(now, &mut pool);
        // The server returns what it receives.
        while let Some(event) = server.poll_tcp_event() {
            if let TcpEvent::Acceptable(_) = event {
                println!("accepted {:?}", server.tcp_accept(listener));
            } else if let TcpEvent::Readable(peer) = event
                && let Ok(Received::Data(len)) = server.tcp_receive(now, peer, &mut buffer)
            {
                server.tcp_send(now, peer, &buffer[..len]).unwrap();
            }
        }
        server.poll_packets(now, PORT, &mut batch, 32, &mut pool);
        client.handle_packets(now, PORT, &mut batch, &mut pool);
        client.handle_deadline(now, &mut pool);
        while let Some(event) = client.poll_tcp_event() {
            if let TcpEvent::Writable(id) = event {
                println!(
                    "open after {}",
                    now.saturating_since(Instant::after_origin(Span::from_secs(1)))
                );
                client.tcp_send(now, id, b"hello over memory").unwrap();
            } else if let TcpEvent::Readable(id) = event
                && let Ok(Received::Data(len)) = client.tcp_receive(now, id, &mut buffer)
            {
                println!("received {:?}", String::from_utf8_lossy(&buffer[..len]));
                return client.tcp_close(now, id);
            }
        }
        assert!(client.tcp_error(id).is_none(), "{:?}", client.tcp_error(id));
    }
}
