//! Header prediction of datagrams: a host that predicts does as one that does not.

use plumb_wire::ip::Ecn;
use plumb_wire::packet::ChecksumState;

use super::*;
use crate::udp::DatagramEndpoints;

/// What a host made of a frame: counters, answers, and the datagram if there is one.
type Fate = (Vec<(&'static str, u64)>, Vec<Vec<u8>>, Option<(Vec<u8>, DatagramEndpoints, Ecn)>);

/// The same of any frame.
type FrameFate = (Vec<(&'static str, u64)>, Vec<Vec<u8>>);

pub(super) fn frame_fate(
    bench: &mut HostFixture,
    frame: &[u8],
    checksum: ChecksumState,
) -> FrameFate {
    let before: Vec<_> = bench.host.counters().iter().collect();
    let mut packet = bench.pool.packet_of(frame).unwrap();
    packet.meta.checksum = checksum;
    bench.host.handle_packets(bench.now, PORT, &mut vec![packet], &mut bench.pool);
    let answers = bench.take();
    let after = bench.host.counters().iter();
    let counted = after.zip(before).filter(|(after, before)| after != before);
    (counted.map(|((name, n), (_, old))| (name, n - old)).collect(), answers)
}

fn fate(bench: &mut HostFixture, sockets: &[UdpId], frame: &[u8], checksum: ChecksumState) -> Fate {
    let (counted, answers) = frame_fate(bench, frame, checksum);
    let received = sockets.iter().find_map(|id| bench.host.udp_receive(*id, &bench.pool));
    let datagram = received.map(|datagram| {
        let (local, remote, port) = (datagram.local, datagram.remote, datagram.port);
        let payload = bench.pool.bytes(&datagram.packet).to_vec();
        let ecn = datagram.ecn();
        bench.pool.free(datagram.packet);
        (payload, DatagramEndpoints { local, remote, port }, ecn)
    });
    bench.pass(Span::from_ms(1));
    (counted, answers, datagram)
}

const MEDIA: [Medium; 2] = [Medium::Ethernet, Medium::Ip];

/// A host, and its sockets at port 7.
fn served(medium: Medium) -> (HostFixture, Vec<UdpId>) {
    let (bench, v6) = match medium {
        Medium::Ethernet => HostFixture::acquainted(),
        Medium::Ip => {
            let capabilities = DeviceCapabilities::plain(medium, 1_500);
            let mut bench = HostFixture::of(HostConfig::default(), capabilities);
            let [_, v6] = Family::both().map(|family| bench.bind(unspecified_like(family.ours), 7));
            bench.take();
            (bench, v6)
        }
    };
    let local = SocketAddr::new([192, 0, 2, 1].into(), 7);
    let v4 = bench.host.udp.lookup(local, SocketAddr::new([192, 0, 2, 2].into(), 9));
    (bench, vec![v4.unwrap(), v6])
}

/// Makes a host forget its predictions.
pub(super) fn forget(bench: &mut HostFixture) {
    let prefix = IpPrefix::new(IpAddr::from([203, 0, 113, 0]), 24).unwrap();
    bench.host.add_route(Route { prefix, port: PORT, gateway: None });
}

/// A datagram from the peer.
fn datagram(family: Family, medium: Medium, payload: &[u8]) -> Vec<u8> {
    let template = match medium {
        Medium::Ethernet => family.inward(),
        Medium::Ip => PacketTemplate::new(family.peer, family.ours),
    };
    template.udp(4_000, 7, payload)
}

/// Makes the checksum of the IPv4 header at `at` right again.
pub(super) fn make_sound(frame: &mut [u8], at: usize) {
    if let Some(header) = frame.get_mut(at..at + 20).filter(|header| header[0] == 0x45) {
        header[10..12].fill(0);
        let checksum = plumb_copy::sum(header).finish();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

pub(super) fn is_predicted(bench: &mut HostFixture, frame: &[u8]) -> bool {
    let packet = bench.pool.packet_of(frame).unwrap();
    let medium = bench.host.interfaces[PORT].capabilities.medium;
    let (generation, bytes) = (bench.host.receive_generation(), bench.pool.bytes(&packet));
    let is_predicted =
        bench.host.predictions.predict(generation, (PORT, medium), &packet, bytes).is_some();
    bench.pool.free(packet);
    is_predicted
}

#[test]
fn prediction_never_changes_the_fate_of_a_frame() {
    for (family, medium) in Family::both().into_iter().flat_map(|one| MEDIA.map(|two| (one, two))) {
        let good = datagram(family, medium, b"eighteen bytes, ok");
        let (mut predicting, sockets) = served(medium);
        let (mut general, _) = served(medium);
        for at in 0..=good.len() {
            for change in [0x01, 0x02, 0x10, 0x40, 0x80, 0xff] {
                let mut frame = good.clone();
                match frame.get_mut(at) {
                    Some(byte) => *byte ^= change,
                    // Cut short, at last to nothing.
                    None => frame.truncate(good.len().saturating_sub(change.into())),
                }
                let mut sound = frame.clone();
                make_sound(&mut sound, if medium == Medium::Ip { 0 } else { 14 });
                let (plain, verified) = (ChecksumState::Plain, ChecksumState::Verified);
                for (frame, state) in [(&good, plain), (&frame, plain), (&sound, verified)] {
                    forget(&mut general);
                    let as_predicted = fate(&mut predicting, &sockets, frame, state);
                    let generally = fate(&mut general, &sockets, frame, state);
                    assert_eq!(as_predicted, generally, "byte {at} changed by {change:#x}");
                }
            }
        }
        predicting.account();
    }
}

#[test]
fn known_flow_is_predicted_until_the_host_changes() {
    for (family, medium) in Family::both().into_iter().flat_map(|one| MEDIA.map(|two| (one, two))) {
        let frame = datagram(family, medium, b"some payload");
        let (mut bench, sockets) = served(medium);
        let is_predicted = |bench: &mut HostFixture| is_predicted(bench, &frame);
        assert!(!is_predicted(&mut bench), "nothing is known yet");
        let (_, _, first) = fate(&mut bench, &sockets, &frame, ChecksumState::Plain);
        assert!(first.is_some() && is_predicted(&mut bench));
        for id in &sockets {
            bench.host.udp_close(*id, &mut bench.pool);
        }
        assert!(!is_predicted(&mut bench), "the socket is closed");
        assert_eq!(fate(&mut bench, &sockets, &frame, ChecksumState::Plain).2, None);
    }
}

#[test]
fn full_queue_drops_predicted_datagrams() {
    let [family, _] = Family::both();
    let frame = family.inward().udp(4_000, 7, b"some payload");
    let (mut bench, _) = served(Medium::Ethernet);
    for _ in 0..256 {
        bench.give(&frame);
    }
    bench.drops(&frame, CounterId::UdpQueueFull);
}
