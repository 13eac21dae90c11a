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

/// A host, and its sockets at port 7.
fn served() -> (HostFixture, Vec<UdpId>) {
    let (bench, v6) = HostFixture::acquainted();
    let local = SocketAddr::new([192, 0, 2, 1].into(), 7);
    let v4 = bench.host.udp.lookup(local, SocketAddr::new([192, 0, 2, 2].into(), 9));
    (bench, vec![v4.unwrap(), v6])
}

/// Makes a host forget its predictions.
pub(super) fn forget(bench: &mut HostFixture) {
    let prefix = IpPrefix::new(IpAddr::from([203, 0, 113, 0]), 24).unwrap();
    bench.host.add_route(Route { prefix, port: PORT, gateway: None });
}

/// Makes the checksum of an IPv4 header right again.
pub(super) fn make_sound(frame: &mut [u8]) {
    if let Some(header) = frame.get_mut(14..34).filter(|header| header[0] == 0x45) {
        header[10..12].fill(0);
        let checksum = plumb_copy::sum(header).finish();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

pub(super) fn is_predicted(bench: &mut HostFixture, frame: &[u8]) -> bool {
    let packet = bench.pool.packet_of(frame).unwrap();
    let (generation, bytes) = (bench.host.receive_generation(), bench.pool.bytes(&packet));
    let is_predicted = bench.host.predictions.predict(generation, PORT, &packet, bytes).is_some();
    bench.pool.free(packet);
    is_predicted
}

#[test]
fn prediction_never_changes_the_fate_of_a_frame() {
    for family in Family::both() {
        let good = family.inward().udp(4_000, 7, b"eighteen bytes, ok");
        let (mut predicting, sockets) = served();
        let (mut general, _) = served();
        for at in 0..=good.len() {
            for change in [0x01, 0x02, 0x10, 0x40, 0x80, 0xff] {
                let mut frame = good.clone();
                match frame.get_mut(at) {
                    Some(byte) => *byte ^= change,
                    // Cut short, at last to nothing.
                    None => frame.truncate(good.len().saturating_sub(change.into())),
                }
                let mut sound = frame.clone();
                make_sound(&mut sound);
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
    for family in Family::both() {
        let frame = family.inward().udp(4_000, 7, b"some payload");
        let (mut bench, sockets) = served();
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
    let (mut bench, _) = served();
    for _ in 0..256 {
        bench.give(&frame);
    }
    bench.drops(&frame, CounterId::UdpQueueFull);
}
