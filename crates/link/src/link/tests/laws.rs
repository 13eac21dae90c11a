//! Laws that hold for every link: nothing is lost or made, one seed gives one schedule, and a late driver
//! changes none of it.

use plumb_wire::ip::TrafficClass;
use proptest::prelude::*;

use super::*;
use crate::fixture;
use crate::frame::DiscardReason;
use crate::text::any_link;

/// What is handed in: after how long, where, how long it is.
type Arrivals = Vec<(u64, bool, usize)>;

fn arrivals(count: usize) -> impl Strategy<Value = Arrivals> {
    proptest::collection::vec((0_u64..2_000_000_000, any::<bool>(), 18_usize..1_800), 1..count)
}

/// Everything that comes out of a link, at either end, until ten seconds later. `looks` says how long after each
/// arrival the driver looks again, if it does. `None` when memory ran out, which depends on when anybody looks.
fn schedule(
    spec: &LinkSpec,
    arrivals: &Arrivals,
    looks: &[Option<u64>],
) -> Option<Vec<(u16, Instant, Vec<u8>)>> {
    let mut rig = Rig::small(spec);
    let free = rig.pool.available();
    let mut starved = false;
    let mut now = rig.start;
    let mut out = [Vec::new(), Vec::new()];
    for (number, (gap, up, len)) in arrivals.iter().enumerate() {
        now += Span::from_ps(*gap);
        let port = if *up { NEAR } else { FAR };
        let number_16 = u16::try_from(number).unwrap();
        let bytes = match number % 3 {
            0 => numbered(number_16.into(), *len),
            n => fixture::udp(n == 2, TrafficClass(2), (number_16, 1), *len - 18),
        };
        let packet = rig.pool.packet_of(&bytes);
        starved |= packet.is_none();
        rig.link.handle_packets(now, port, &mut packet.into_iter().collect(), &mut rig.pool);
        assert_eq!(rig.violations(now), []);
        if let Some(Some(later)) = looks.get(number % looks.len().max(1)) {
            let look = now
                + Span::from_ps((*later).min(arrivals.get(number + 1).map_or(0, |next| next.0)));
            for port in [NEAR, FAR] {
                out[usize::from(port.0)].extend(rig.receive(look, port));
            }
            assert_eq!(rig.violations(look), []);
        }
    }
    let end = now + Span::from_secs(10);
    for port in [NEAR, FAR] {
        out[usize::from(port.0)].extend(rig.receive(end, port));
    }
    let report = rig.link.report(end);
    assert_eq!(report.violations, []);
    starved |= report
        .directions
        .iter()
        .any(|direction| direction.discards.of(DiscardReason::NoMemory).0 > 0);
    rig.link.clear(&mut rig.pool);
    assert_eq!(rig.pool.available(), free, "every frame of the pool comes back");
    let [near, far] = out;
    let mark = |port, out: Vec<(Instant, Vec<u8>)>| {
        out.into_iter().map(move |(at, bytes)| (port, at, bytes))
    };
    (!starved).then(|| mark(0, near).chain(mark(1, far)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_link_loses_or_makes_a_frame_and_a_late_driver_changes_nothing(
        spec in any_link(),
        arrivals in arrivals(40),
        looks in proptest::collection::vec(proptest::option::of(0_u64..2_000_000_000), 1..10),
    ) {
        let on_time = schedule(&spec, &arrivals, &[Some(0)]);
        let late = schedule(&spec, &arrivals, &looks);
        let (Some(on_time), Some(late)) = (on_time, late) else { return Ok(()) };
        prop_assert!(on_time == late, "{}", spec);
        let moments: Vec<_> = on_time.iter().map(|(port, at, _)| (*port, *at)).collect();
        prop_assert!(moments.is_sorted());
    }

    #[test]
    fn no_frame_is_earlier_than_its_serialisation_and_delay_nor_overtakes(
        rate in 1_200_u64..10_000_000_000,
        delay_us in 0_u64..100_000,
        arrivals in arrivals(60),
    ) {
        let spec = format!("rate={rate}bit,delay={delay_us}us,jitter={delay_us}us,limit=100000packets");
        let spec: LinkSpec = spec.parse().unwrap();
        let mut rig = Rig::of(&spec, Medium::Ethernet);
        let mut now = rig.start;
        let mut least = Vec::new();
        let mut sent = [rig.start, rig.start];
        for (number, (gap, up, len)) in arrivals.iter().enumerate() {
            now += Span::from_ps(*gap);
            let port = if *up { NEAR } else { FAR };
            rig.send(now, port, &numbered(u32::try_from(number).unwrap(), *len));
            let bits = u128::from(*len as u64) * 8;
            let serialisation = bits * 1_000_000_000_000 / u128::from(rate);
            let sent = &mut sent[usize::from(port.0)];
            *sent = now.max(*sent) + Span::from_ps(u64::try_from(serialisation).unwrap());
            least.push(*sent);
        }
        let later = Span::from_secs(86_400);
        for port in [NEAR, FAR] {
            let received = rig.receive(rig.start + later, port);
            let numbers: Vec<_> = received.iter().map(|(_, bytes)| number(bytes)).collect();
            prop_assert!(numbers.is_sorted());
            for (at, bytes) in &received {
                prop_assert!(*at >= least[number(bytes) as usize]);
            }
        }
    }
}

#[test]
fn what_a_queue_hides_breaks_the_law() {
    let mut rig = Rig::new("rate=1mbit,delay=5ms");
    rig.send(rig.start, NEAR, &numbered(1, 1_000));
    rig.send(rig.start, NEAR, &numbered(2, 1_000));
    let now = rig.start + Span::from_ms(3);
    let report = rig.link.report(now);
    assert_eq!(report.violations, []);
    let up = &report.directions[0];
    assert_eq!((up.waiting.frames, up.sending.frames, up.in_flight.frames), (1, 1, 0));
    assert!((up.used_bits - 3_000.0).abs() < 1e-6, "{}", up.used_bits);
    let mut broken = up.clone();
    broken.waiting.frames = 0;
    broken.law.length_integral += 1;
    let violations = NetworkReport::new(now, vec![broken], report.routers).violations;
    assert_eq!(violations.len(), 3, "{violations:?}");
}
