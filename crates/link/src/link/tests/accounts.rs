//! Accounts that are handed over in pieces, as a driver does.

use plumb_base::stats::sparse_histogram::SparseHistogram;

use super::*;

#[test]
fn what_is_handed_over_in_pieces_adds_up_to_what_one_report_would_have_told() {
    let text = "rate=1mbit,delay=2ms,limit=6packets;rate=2mbit";
    let (mut rig, mut other) = (Rig::new(text), Rig::new(text));
    let mut told = rig.link.report(rig.start);
    for round in 0..4_u32 {
        for number in 0..20_u32 {
            let now = rig.start + Span::from_ms(u64::from(round * 20 + number));
            for rig in [&mut rig, &mut other] {
                rig.send(now, [NEAR, FAR][number as usize % 2], &numbered(number, 300));
                rig.receive(now, NEAR);
                rig.receive(now, FAR);
            }
        }
        let now = rig.start + Span::from_ms(u64::from(round * 20 + 19));
        let mut form = told.with_empty_histograms();
        rig.link.exchange_report(now, false, &mut form);
        form.merge_earlier(&told);
        told = form;
        let whole = other.link.report(now);
        assert_eq!(told.at, whole.at);
        assert!(told.violations.is_empty() && whole.violations.is_empty(), "{told:?}");
        for (told, whole) in told.directions.iter().zip(&whole.directions) {
            assert_eq!((&told.name, &told.text), (&whole.name, &whole.text));
            assert_eq!((told.left, told.waiting), (whole.left, whole.waiting), "{}", told.name);
            assert_eq!(told.in_flight, whole.in_flight, "{}", told.name);
            let all = |histogram: &SparseHistogram| histogram.iter_recorded().collect::<Vec<_>>();
            assert_eq!(all(&told.sojourns), all(&whole.sojourns), "{}", told.name);
            assert_eq!(all(&told.queue_lengths), all(&whole.queue_lengths), "{}", told.name);
        }
    }
    assert!(told.directions[0].sojourns.len() > 10, "{told:?}");
    // Texts are those of the form unless the link became another.
    let changed = "rate=3mbit,delay=2ms,limit=6packets;rate=2mbit".parse().unwrap();
    let now = rig.start + Span::from_secs(1);
    rig.link.reconfigure(now, &changed, &mut rig.pool).unwrap();
    let mut form = told.with_empty_histograms();
    rig.link.exchange_report(now, true, &mut form);
    assert!(form.directions[0].text.contains("3mbit"), "{}", form.directions[0].text);
}
