//! Launches of visits: the whole page comes in every way, no sooner than its round trips allow, and no process of
//! them is left.

use plumb_base::time::Span;
use plumb_harness::launcher::{LaunchError, RunningLaunch};
use plumb_harness::report::BlockReport;
use plumb_harness::spec::{
    BlockTask, DeviceOptions, LaunchSubject, PageLoadSpec, PathKind, PathSpec,
};

use super::support::{plumb_processes, signal};
use super::{alone, beside_others, block, wait_for_the_end};

const WAYS: [&str; 5] = ["one-each", "keep-alive", "pipelined", "http2", "http3"];

fn link(text: &str) -> PathSpec {
    PathSpec {
        name: "a path".to_owned(),
        kind: PathKind::Link(text.to_owned()),
        mtu: 1_500,
        round_trip_ns: 0,
        rate: None,
        device: DeviceOptions::default(),
    }
}

fn start(way: &str, path: Option<PathSpec>) -> Option<RunningLaunch> {
    super::start(LaunchSubject::PageLoads(Box::new(PageLoadSpec {
        path,
        fetch_mode: way.to_owned(),
    })))
}

fn visit(launch: &mut RunningLaunch) -> Result<BlockReport, LaunchError> {
    block(launch, BlockTask::PageLoad, Span::from_ms(40))
}

#[test]
fn the_whole_page_comes_in_every_way_block_after_block() {
    let _others = beside_others();
    for way in WAYS {
        let Some(mut launch) = start(way, None) else { return };
        for _ in 0..2 {
            let report = visit(&mut launch).unwrap();
            assert!(report.n > 0 && report.samples.iter().all(|ns| *ns > 0.0), "{way}: {report:?}");
            assert_eq!(report.effort.operations, report.n + report.warmup, "{way}");
            assert!(report.effort.local.process_ns > 0 && report.effort.peer.process_ns > 0);
        }
        launch.finish().unwrap();
    }
}

#[test]
fn no_visit_is_shorter_than_its_round_trips_and_its_bytes() {
    let _others = beside_others();
    // 4 ms there and back, and 32 ms for 40,000 bytes.
    for (way, round_trips) in WAYS.into_iter().zip([26.0, 14.0, 3.0, 3.0, 4.0]) {
        let Some(mut launch) = start(way, Some(link("rate=10mbit,delay=2ms,limit=1bdp"))) else {
            return;
        };
        let report = visit(&mut launch).unwrap();
        let least = report.samples.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least >= round_trips * 4e6 + 32e6, "{way}: {least}");
        assert!(report.counters["link_frames"] > 0);
        launch.finish().unwrap();
    }
}

#[test]
fn a_server_that_is_killed_is_named_and_ends_the_launch() {
    let _alone = alone();
    let Some(mut launch) = start("keep-alive", None) else { return };
    visit(&mut launch).unwrap();
    let servers = plumb_processes(&["__web"]);
    assert_eq!(servers.len(), 1);
    assert!(signal(servers[0], "KILL"));
    // Whatever it was doing when it was killed, the next block or the one after finds no server.
    let outcomes = [(); 2].map(|()| visit(&mut launch).map_err(|error| error.to_string()));
    let told = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
    let told = told.unwrap_or_else(|| panic!("{outcomes:?}"));
    assert!(told.contains("page load failed") || told.contains("server is gone"), "{told}");
    drop(launch);
    wait_for_the_end();
}

#[test]
fn whoever_serves_ends_with_a_launch_that_is_finished_or_killed() {
    let _alone = alone();
    for is_finished in [true, false] {
        let Some(mut launch) = start("http3", Some(link("delay=1ms"))) else { return };
        visit(&mut launch).unwrap();
        assert_eq!(plumb_processes(&["__web"]).len(), 1);
        if is_finished {
            launch.finish().unwrap();
        } else {
            drop(launch);
        }
        wait_for_the_end();
    }
}

#[test]
fn what_is_no_visit_and_no_way_is_told_by_name() {
    let _others = beside_others();
    let Some(mut launch) = start("http9", None) else { return };
    let task = BlockTask::Streams { size: 64 };
    match block(&mut launch, task, Span::from_ms(40)) {
        Err(LaunchError::Unavailable(reason)) => assert!(reason.contains("page loads"), "{reason}"),
        other => panic!("{other:?}"),
    }
    match visit(&mut launch) {
        Err(LaunchError::Failed(reason)) => assert!(reason.contains("http9"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
