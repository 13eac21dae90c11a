//! Claims about text: what is written is read again, and what is wrong is explained.

use plumb_base::time::Span;
use plumb_base::units::Rate;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::spec::{
    BucketSpec, DelayDistribution, DelaySpec, FaultSpec, HopMtuSpec, LimitSpec, QueueSpec,
    RateSpec, RateTrace,
};
use crate::text::NoFiles;

const TRACE: &str = "1\n3\n";
const DELAYS: &str = "1ms\n2ms\n";

/// Two files that any name stands for.
struct LinkTextTestFiles;

impl LinkTextFiles for LinkTextTestFiles {
    fn read(&self, name: &str) -> Result<String, String> {
        Ok(if name.starts_with('d') { DELAYS } else { TRACE }.to_owned())
    }
}

fn direction(text: &str) -> DirectionSpec {
    DirectionSpec::parse(text, &LinkTextTestFiles).unwrap()
}

fn error(text: &str) -> String {
    LinkSpec::parse(text, &LinkTextTestFiles).unwrap_err().to_string()
}

fn span() -> impl Strategy<Value = Span> {
    (1_u64..80_000_000_000_000_000, 0_u32..56)
        .prop_map(|(ps, shift)| Span::from_ps((ps >> shift).max(1)))
}

fn rate() -> impl Strategy<Value = Rate> {
    (1_u64..=1_000_000_000_000, 0_u32..40)
        .prop_map(|(bits, shift)| Rate::from_bits_per_second((bits >> shift).max(1)).unwrap())
}

fn share() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), 1e-12_f64..1.0]
}

fn bucket() -> impl Strategy<Value = BucketSpec> {
    (rate(), 1_514_u64..1 << 40).prop_map(|(rate, burst)| BucketSpec { rate, burst })
}

fn rate_spec() -> impl Strategy<Value = RateSpec> {
    let name = "t[a-z,;| %=äö/.]{0,8}";
    prop_oneof![
        Just(RateSpec::Unlimited),
        rate().prop_map(RateSpec::Constant),
        bucket().prop_map(RateSpec::Bucket),
        (rate(), span(), span()).prop_map(|(rate, on, off)| RateSpec::OnOff { rate, on, off }),
        name.prop_map(|name| RateSpec::Trace(RateTrace::parse(&name, TRACE).unwrap())),
    ]
}

fn limit() -> impl Strategy<Value = LimitSpec> {
    prop_oneof![
        (1_u64..1 << 40).prop_map(LimitSpec::Frames),
        (1_u64..1 << 40).prop_map(LimitSpec::Bytes),
        (1_u64..1 << 40).prop_map(LimitSpec::Bdp),
    ]
}

fn queue() -> impl Strategy<Value = QueueSpec> {
    let names =
        ["drop-tail", "red", "codel", "fq-codel", "pie", "drr", "csfq", "red-pd", "priority"];
    (0..names.len(), limit(), span(), span(), any::<bool>(), 64_u32..70_000, share()).prop_map(
        move |(kind, new_limit, a, b, new_ecn, number, share)| {
            let (short, long) = (a.min(b), a.max(b) + Span::from_ps(1));
            let mut queue = QueueSpec::named(names[kind]).unwrap();
            *queue.limit_mut() = new_limit;
            match &mut queue {
                QueueSpec::DropTail { .. } | QueueSpec::Priority { .. } => {}
                QueueSpec::Red { min, max, p_max, ecn, .. } => {
                    (*min, *max) = (number.into(), u64::from(number) * 3);
                    (*p_max, *ecn) = (share, new_ecn);
                }
                QueueSpec::CoDel { target, interval, ecn, .. } => {
                    (*target, *interval, *ecn) = (short, long, new_ecn);
                }
                QueueSpec::FqCoDel { flows, quantum, target, interval, ecn, .. } => {
                    (*flows, *quantum) = (number.min(65_536), number);
                    (*target, *interval, *ecn) = (short, long, new_ecn);
                }
                QueueSpec::Pie { target, update, ecn, .. } => {
                    (*target, *update, *ecn) = (short, long + Span::from_us(100), new_ecn);
                }
                QueueSpec::Drr { flows, quantum, .. } => {
                    (*flows, *quantum) = (number.min(65_536), number);
                }
                QueueSpec::Csfq { flows, average, .. } => {
                    (*flows, *average) = (number.min(65_536), long + Span::from_ms(1));
                }
                QueueSpec::RedPd { min, max, p_max, ecn, rtt, .. } => {
                    (*min, *max) = (number.into(), u64::from(number) * 3);
                    (*p_max, *ecn, *rtt) = (share, new_ecn, long + Span::from_ms(1));
                }
            }
            queue
        },
    )
}

fn fault() -> impl Strategy<Value = FaultSpec> {
    let window = || (span(), span()).prop_map(|(a, b)| (a.max(b) + Span::from_ps(1), a.min(b)));
    prop_oneof![
        share().prop_map(FaultSpec::Loss),
        (share(), share(), share(), share()).prop_map(|(p, r, loss_good, loss_bad)| {
            FaultSpec::GilbertElliott { p, r, loss_good, loss_bad }
        }),
        (1_u64..).prop_map(FaultSpec::Periodic),
        proptest::collection::vec(1_u64.., 1..5).prop_map(|n| FaultSpec::Listed(n.into())),
        share().prop_map(FaultSpec::BitErrors),
        (share(), span()).prop_map(|(share, by)| FaultSpec::Reorder { share, by }),
        share().prop_map(FaultSpec::Duplicate),
        share().prop_map(FaultSpec::Corrupt),
        share().prop_map(FaultSpec::Truncate),
        window().prop_map(|(every, lasting)| FaultSpec::Clog { every, lasting }),
        window().prop_map(|(every, lasting)| FaultSpec::Blackout { every, lasting }),
        Just(FaultSpec::Partition),
    ]
}

fn delay() -> impl Strategy<Value = DelaySpec> {
    let distribution = prop_oneof![
        (0_u64..1_000_000).prop_map(|ps| DelayDistribution::Constant(Span::from_ps(ps))),
        (span(), span())
            .prop_map(|(a, b)| DelayDistribution::Uniform { min: a.min(b), max: a.max(b) }),
        (span(), span())
            .prop_map(|(mean, deviation)| DelayDistribution::Normal { mean, deviation }),
        (span(), 1_001_u64..1 << 30).prop_map(|(scale, shape_thousandths)| {
            DelayDistribution::Pareto { scale, shape_thousandths }
        }),
        "d[a-z,]{0,5}".prop_map(|file| DelayDistribution::Replayed {
            delays: parse_delays(&file, DELAYS).unwrap(),
            file,
        }),
    ];
    (distribution, any::<bool>())
        .prop_map(|(distribution, may_overtake)| DelaySpec { distribution, may_overtake })
}

/// Any direction that can be made.
fn any_direction() -> impl Strategy<Value = DirectionSpec> {
    let mtu = (68_u32..=65_535, any::<bool>())
        .prop_map(|(bytes, tells)| HopMtuSpec { bytes, sends_icmp: tells });
    (
        rate_spec(),
        0_u32..100,
        queue(),
        proptest::option::of(bucket()),
        proptest::collection::vec(fault(), 0..4),
        delay(),
        proptest::option::of(mtu),
    )
        .prop_map(|(rate, overhead, queue, policer, faults, delay, mtu)| DirectionSpec {
            // Nothing waits where there is no rate.
            queue: if rate == RateSpec::Unlimited { QueueSpec::default() } else { queue },
            rate,
            overhead,
            policer,
            faults,
            delay,
            mtu,
        })
}

/// Any link that can be made.
pub(crate) fn any_link() -> impl Strategy<Value = LinkSpec> {
    let hops = proptest::collection::vec((any_direction(), any_direction(), any::<bool>()), 1..4);
    (hops, any::<u64>()).prop_map(|(hops, seed)| {
        let hops = hops
            .into_iter()
            .map(|(up, down, same)| HopSpec { down: if same { up.clone() } else { down }, up });
        LinkSpec { hops: hops.collect(), seed: Seed(seed) }
    })
}

proptest! {
    #[test]
    fn a_link_is_read_as_it_is_written(spec in any_link()) {
        let text = spec.to_string();
        prop_assert_eq!(LinkSpec::parse(&text, &LinkTextTestFiles), Ok(spec), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "[a-z=,;|/.0-9%-]{0,40}", key in select(direction::keys().collect::<Vec<_>>()), value in ".{0,8}") {
        let _ = LinkSpec::parse(&text, &LinkTextTestFiles);
        let _ = LinkSpec::parse(&format!("{key}={value}"), &LinkTextTestFiles);
    }
}

#[test]
fn what_is_given_changes_a_direction_and_leaves_the_rest() {
    let mut spec = direction("rate=10mbit,delay=25ms,loss=1%,duplicate=1%,limit=64packets");
    spec.apply("rate=1mbit,loss=2%", &NoFiles).unwrap();
    assert_eq!(spec, direction("rate=1mbit,delay=25ms,duplicate=1%,loss=2%,limit=64packets"));
    spec.apply("faults=none,jitter=5ms", &NoFiles).unwrap();
    assert_eq!(spec, direction("rate=1mbit,delay=20ms..30ms,limit=64packets"));
    spec.apply("burst=64KiB,queue=codel", &NoFiles).unwrap();
    assert_eq!(spec, direction("rate=1mbit,burst=64KiB,delay=25ms,jitter=5ms,queue=codel"));
    spec.apply("rate=unlimited,delay=0", &NoFiles).unwrap();
    assert_eq!(spec.rate, RateSpec::Unlimited);
    assert_eq!(direction("rate=1mbit,loss=0").faults, []);
}

#[test]
fn hops_and_directions_are_told_apart() {
    let spec = LinkSpec::parse("seed=7; rate=1mbit | rate=10mbit ;plain", &NoFiles).unwrap();
    assert_eq!(spec.seed, Seed(7));
    assert_eq!(spec.hops.len(), 2);
    assert_eq!(spec.hops[0].down, direction("rate=10mbit"));
    assert_eq!(spec.hops[1].up, DirectionSpec::default());
    assert!(error("plain|plain|plain").contains("more than two directions"));
}

#[test]
fn what_is_wrong_is_explained_with_what_would_be_right() {
    for (text, said) in [
        ("rate=0", "a rate must be positive"),
        ("rate=2tbit", "1tbit"),
        ("rate=-5mbit", "negative"),
        ("rate=fast", "10mbit"),
        ("rate=trace:x,burst=4k", "needs a rate"),
        ("rate=1mbit,burst=100", "full frame"),
        ("rate=1mbit,on=1s", "give both on= and off="),
        ("rate=1mbit,on=0s,off=1s", "nothing is ever sent"),
        ("delay=-25ms", "negative"),
        ("delay=25", "has no unit"),
        ("delay=30h", "longer than a day"),
        ("delay=5ms,jitter=6ms", "longer than the delay"),
        ("delay=5ms,distribution=zipf,jitter=1ms", "uniform, normal or pareto"),
        ("delay=5ms,shape=0.9", "above 1"),
        ("loss=150%", "between 0 and 1"),
        ("gilbert-elliott=1%", "P/R"),
        ("lose=0", "counted from 1"),
        ("blackout=1s/2s", "never ends"),
        ("queue=lifo", "drop-tail, red"),
        ("queue=codel,flows=5", "belongs to queue=fq-codel, drr"),
        ("limit=64", "64packets"),
        ("limit=0packets", "at least 1packet"),
        ("limit=64packets", "hop 1 up: the queue that is asked for would limit nothing"),
        ("rate=1mbit;delay=5ms|queue=codel", "hop 2 down: the queue"),
        ("rate=1mbit;", "write 'plain'"),
        ("rate=1mbit|", "write 'plain'"),
        ("", "write 'plain'"),
        ("mtu=67", "IPv4 needs 68"),
        ("rate=1mbit,rate=2mbit", "given twice"),
        ("rat=1mbit", "did you mean rate?"),
        ("colour=blue", "there are: rate,"),
        ("1mbit", "write key=value"),
        ("seed=x;plain", "whole number"),
    ] {
        let error = error(text);
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn an_mtu_that_ipv6_cannot_do_with_is_remarked_with_its_place() {
    let places = |text: &str| -> Vec<String> {
        let remarks = LinkSpec::parse(text, &NoFiles).unwrap().warnings();
        remarks.iter().map(|remark| remark.split(':').next().unwrap().to_owned()).collect()
    };
    assert_eq!(places("mtu=576"), ["hop 1 both ways"]);
    assert_eq!(places("plain;mtu=1280|mtu=1279"), ["hop 2 down"]);
    assert_eq!(places("mtu=600|mtu=700"), ["hop 1 up", "hop 1 down"]);
}

fn changed(link: &str, change: &str) -> String {
    let link: LinkSpec = link.parse().expect("a link");
    link.changed(change, &NoFiles).map_or_else(|error| error.to_string(), |link| link.to_string())
}

fn same(link: &str) -> String {
    link.parse::<LinkSpec>().expect("a link").to_string()
}

#[test]
fn a_change_reaches_the_directions_that_it_names() {
    let link = "rate=1mbit,loss=1%;delay=5ms";
    assert_eq!(changed(link, "hop 2 delay=7ms"), same("rate=1mbit,loss=1%;delay=7ms"));
    assert_eq!(
        changed(link, "hop 1 up rate=2mbit"),
        same("rate=2mbit,loss=1%|rate=1mbit,loss=1%;delay=5ms")
    );
    let both_ways = same("rate=1mbit,loss=1%;delay=5ms|delay=9ms");
    assert_eq!(changed(link, "down hop 2 delay=9ms"), both_ways);
    assert_eq!(changed(link, "hop 2 down delay=9ms"), both_ways);
    assert_eq!(changed(link, "delay=1ms"), same("rate=1mbit,loss=1%,delay=1ms;delay=1ms"));
    assert_eq!(changed("rate=1mbit", "down loss=2%"), same("rate=1mbit|rate=1mbit,loss=2%"));
    assert_eq!(changed("rate=1mbit", "rate=2mbit, delay=1ms"), same("rate=2mbit,delay=1ms"));
}

#[test]
fn a_queue_goes_with_its_rate() {
    assert_eq!(changed("rate=1mbit,queue=codel", "rate=none"), same("plain"));
    assert!(changed("delay=1ms", "queue=codel").contains("limit nothing"));
    assert!(changed("rate=1mbit", "rate=none,queue=codel").contains("limit nothing"));
}

#[test]
fn a_preset_is_the_whole_link_but_its_seed() {
    let lossy = LinkPreset::named("lossy").expect("there is one").text;
    let spec: LinkSpec = lossy.parse().expect("a link");
    assert_eq!(changed("rate=1mbit", "preset lossy"), spec.to_string());
    assert_eq!(changed("seed=7;rate=1mbit", "preset lossy"), format!("seed=7;{spec}"));
}

#[test]
fn the_files_that_a_change_names_are_known_before_it_is_made() {
    let named = files_of("hop 2 up rate=trace:a%2cb, delay=replay:/my delays").expect("a change");
    let (trace, delays) = ("a,b".to_owned(), "/my delays".to_owned());
    assert_eq!(named, [NamedFile::Trace(trace), NamedFile::Delays(delays)]);
    assert_eq!(files_of("rate=1mbit"), Ok(Vec::new()));
    assert_eq!(files_of("preset lossy"), Ok(Vec::new()));
    assert!(files_of("up").is_err());
}

#[test]
fn a_change_that_cannot_be_is_refused() {
    assert!(changed("plain", "hop 2 rate=1mbit").contains("from 1"));
    assert!(changed("plain", "up").contains("key=value"));
    assert!(changed("plain", "preset no-such").contains("preset"));
    assert!(changed("plain", "hop 0 rate=1mbit").contains("from 1"));
    assert!(changed("plain", "mtu=1").contains("IPv4 needs 68"));
}
