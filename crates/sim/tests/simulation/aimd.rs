//! Additive increase, multiplicative decrease: utilisation with any buffer, and throughput by loss.

use plumb_base::time::Span;
use plumb_stack::tcp::congestion::CongestionChoice;

use crate::network::{dumbbell, hop, plain, run, slope};

/// The share of a bottleneck with a buffer of `b` products of rate and delay that a window uses which falls to `beta` of itself and grows
/// linearly: the mean of a sawtooth between beta (1 + b) and 1 + b, over what time it takes.
fn linear_utilization(beta: f64, b: f64) -> f64 {
    let top = 1.0 + b;
    if beta * top >= 1.0 {
        return 1.0;
    }
    // Below 1 the rate is the window; above, packets wait and the round trip grows with it.
    (1.0 - beta * beta) * top * top / (2.0 * (1.0 - beta * top) + top * top - 1.0)
}

/// The share of CUBIC with no buffer, the whole time in its curve. A loss at or above the last maximum W leaves a curve from βW to
/// its plateau at W, whose mean is (3 + β)/4 W = 92.5 % (RFC 9438 §5). The next is a little below that, and fast convergence (§4.7) puts the
/// plateau at (1 + β)/2 W, so that half of the curve is concave and half convex: a mean of 85 %, for twice ∛½ of the time.
fn cubic_utilization() -> f64 {
    let (concave, both) = (0.925, 0.85);
    let longer = 2.0 * 0.5_f64.cbrt();
    (concave + both * longer) / (1.0 + longer)
}

/// The used share of a bottleneck of this rate in Mb/s and one-way delay, with so many packets of buffer, over so many seconds; access takes
/// 1 ms each way.
fn utilization(
    congestion: CongestionChoice,
    (rate, delay): (u32, u32),
    buffer: u32,
    seconds: u64,
) -> f64 {
    let bottleneck = format!("rate={rate}mbit,delay={delay}ms,limit={buffer}packets");
    let mut scenario = dumbbell(1, "rate=1gbit,delay=1ms", &bottleneck, &plain(congestion));
    scenario.duration = Span::from_secs(seconds * 7 / 6);
    scenario.warmup = Span::from_secs(seconds / 6);
    let report = run(scenario);
    let flow = &report.flows[0];
    assert_eq!(flow.counts.sent.timeouts, 0, "a sawtooth has no timeouts");
    assert!(
        flow.counts.sent.recoveries >= 40 || buffer >= 100,
        "{} sawteeth",
        flow.counts.sent.recoveries
    );
    report.link("router1 > router2").expect("the bottleneck").utilization.expect("a rate")
}

#[test]
fn reno_uses_what_the_sawtooth_leaves() {
    for packets in [3, 12, 25, 50, 75, 100] {
        // A packet that is being sent has left the buffer, and waits all the same.
        let b = f64::from(packets + 1) / 101.0;
        // A product of 100 packets.
        let seen = utilization(CongestionChoice::NewReno, (20, 28), packets, 360);
        let expected = linear_utilization(0.5, b);
        println!("b = {b:.3}: {:.2} % used, {:.2} % expected", seen * 100.0, expected * 100.0);
        assert!((seen - expected).abs() < 0.01, "b = {b}: {seen:.4} used, {expected:.4} expected");
    }
}

#[test]
fn cubic_uses_what_its_curve_leaves() {
    // A product of 100 packets of 10 ms: α = 9/17 a round trip is more than the curve grows by (RFC 9438 §4.3).
    for packets in [3, 12, 25] {
        let b = f64::from(packets + 1) / 101.0;
        let seen = utilization(CongestionChoice::Cubic, (120, 3), packets, 60);
        let expected = linear_utilization(0.7, b);
        println!("b = {b:.3}: {:.2} % used, {:.2} % expected", seen * 100.0, expected * 100.0);
        assert!((seen - expected).abs() < 0.01, "b = {b}: {seen:.4} used, {expected:.4} expected");
    }
    // One of 400 packets of 100 ms: the curve is back at its plateau three times sooner.
    let seen = utilization(CongestionChoice::Cubic, (48, 48), 3, 360);
    let expected = cubic_utilization();
    println!("curve: {:.2} % used, {:.2} % expected", seen * 100.0, expected * 100.0);
    assert!((seen - expected).abs() < 0.01, "{seen:.4} used, {expected:.4} expected");
}

/// Padhye, Firoiu, Towsley & Kurose 1998: segments in a round trip at a rate of loss events, with a timeout of so many round trips, every
/// segment acknowledged.
fn padhye(p: f64, timeout: f64) -> f64 {
    let timeouts = timeout * (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    1.0 / ((2.0 * p / 3.0).sqrt() + timeouts)
}

#[test]
fn throughput_at_random_loss_is_what_padhye_says() {
    for loss in [0.001, 0.01, 0.03] {
        let lossy = format!("delay=25ms,loss={}%|delay=25ms", loss * 100.0);
        let mut scenario = dumbbell(1, "delay=12500us", &lossy, &plain(CongestionChoice::NewReno));
        scenario.ring = 1 << 20;
        scenario.duration = Span::from_secs(6_000);
        scenario.warmup = Span::from_secs(60);
        let report = run(scenario);
        let (flow, sent) = (&report.flows[0], report.flows[0].counts.sent);
        let seen = flow.counts.received.bytes as f64 / flow.active.as_secs_f64() * 0.1 / 1_448.0;
        // A round in which several are lost is one event.
        let p = (sent.recoveries + sent.timeouts) as f64 / sent.segments as f64;
        // The timer is the round trip and 200 ms (RFC 6298, Linux's least).
        let expected = padhye(p, 3.0);
        println!("loss {loss}, events {p:.5}: {seen:.2} segments, {expected:.2} expected");
        assert!((seen / expected - 1.0).abs() < 0.15, "{loss}: {seen:.2}, {expected:.2} expected");
    }
}

/// Segments in a round trip, of a connection that loses every `every`-th segment and is limited by nothing else; it runs as long as Reno
/// takes for so many losses.
fn window(congestion: CongestionChoice, every: u64, round_trip: Span, losses: u64) -> f64 {
    let rounds = (losses * every) as f64 / (1.5 * every as f64).sqrt();
    let duration = Span::from_secs_f64(rounds * round_trip.as_secs_f64());
    let half = round_trip / 2;
    let access = format!("delay={}us", (half / 4).as_ns() / 1_000);
    let lossy = format!("delay={0}us,lose-every={every}|delay={0}us", (half / 2).as_ns() / 1_000);
    let mut config = plain(congestion);
    config.send_buffer.max = 1 << 28;
    config.receive_buffer.max = 1 << 28;
    config.send_buffer.initial = 1 << 28;
    config.receive_buffer.initial = 1 << 28;
    let mut scenario = dumbbell(1, &access, &lossy, &config);
    scenario.ring = 1 << 20;
    scenario.duration = duration;
    scenario.warmup = duration / 4;
    let report = run(scenario);
    let flow = &report.flows[0];
    assert!(flow.counts.sent.recoveries > 10, "{} losses", flow.counts.sent.recoveries);
    let bytes =
        flow.counts.received.bytes as f64 / flow.active.as_secs_f64() * round_trip.as_secs_f64();
    bytes / 1_448.0
}

#[test]
fn throughput_of_reno_is_the_square_root_law() {
    for every in [1_000, 3_000, 10_000] {
        let seen = window(CongestionChoice::NewReno, every, Span::from_ms(100), 60);
        let expected = (1.5 * every as f64).sqrt();
        println!("1/{every}: {seen:.2} segments a round trip, {expected:.2} expected");
        assert!(
            (seen / expected - 1.0).abs() < 0.02,
            "1/{every}: {seen:.2}, {expected:.2} expected"
        );
    }
}

#[test]
fn response_functions_have_the_slopes_of_their_laws() {
    let reno: Vec<(f64, f64)> = [100_u64, 1_000, 10_000]
        .map(|every| {
            (1.0 / every as f64, window(CongestionChoice::NewReno, every, Span::from_ms(50), 40))
        })
        .into();
    let slope_reno = slope(&reno);
    // Windows in which CUBIC is not that of Reno, RFC 9438 §5.2: 187 segments at 10⁻⁴, 1,054 at 10⁻⁵.
    let cubic: Vec<(f64, f64)> = [10_000_u64, 31_623, 100_000]
        .map(|every| {
            (1.0 / every as f64, window(CongestionChoice::Cubic, every, Span::from_ms(100), 12))
        })
        .into();
    let slope_cubic = slope(&cubic);
    println!("Reno {slope_reno:.3} {reno:?}\nCUBIC {slope_cubic:.3} {cubic:?}");
    assert!((slope_reno + 0.5).abs() < 0.03, "Reno: {slope_reno}");
    assert!((slope_cubic + 0.75).abs() < 0.03, "CUBIC: {slope_cubic}");
}

#[test]
fn with_equal_loss_throughput_goes_with_the_inverse_of_the_round_trip() {
    let [short, long] = [40, 160]
        .map(|ms| window(CongestionChoice::NewReno, 1_000, Span::from_ms(ms), 60) / ms as f64);
    assert!((short / long / 4.0 - 1.0).abs() < 0.03, "{short} and {long} segments a millisecond");
}

#[test]
fn bbr_alone_fills_its_bottleneck_but_for_its_probes() {
    let mut scenario = dumbbell(
        1,
        "rate=1gbit,delay=1ms",
        "rate=50mbit,delay=18ms,limit=2bdp",
        &plain(CongestionChoice::Bbr),
    );
    scenario.duration = Span::from_secs(60);
    scenario.warmup = Span::from_secs(10);
    let report = run(scenario);
    let link = report.link("router1 > router2").expect("the bottleneck");
    let used = link.utilization.expect("a rate");
    println!("{used} used, {} wait", link.queue_mean);
    assert!((used - 0.98).abs() < 0.02, "{used}");
    let product = hop("rate=50mbit").up.rate.mean().expect("a rate").bits_per_second() as f64
        * 0.04
        / 12_000.0;
    assert!(link.queue_mean < product / 2.0, "{} packets wait of {product}", link.queue_mean);
}
