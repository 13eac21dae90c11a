//! Placements on machines of many shapes.

use super::*;
use crate::environment::tests::{FixtureCpu, MachineFixture};
use proptest::prelude::*;

fn pair(topology: &CpuTopology, placement: CpuPlacement) -> (u32, u32) {
    let pair = topology.pair(placement).unwrap();
    (pair.local.unwrap(), pair.peer.unwrap())
}

fn reason(topology: &CpuTopology, placement: CpuPlacement) -> String {
    topology.pair(placement).unwrap_err().reason
}

/// Four cores of two threads, numbered as Linux does: CPU 4 is the second thread of core 0.
fn laptop() -> MachineFixture {
    let mut fixture = MachineFixture::new().online(&[0, 1, 2, 3, 4, 5, 6, 7]);
    for id in 0..8_u32 {
        let threads = format!("{},{}", id % 4, id % 4 + 4);
        let caches =
            [(1, "Data", threads.as_str()), (1, "Instruction", "0-7"), (3, "Unified", "0-7")];
        fixture = fixture.cpu(&FixtureCpu { id, socket: 0, threads: &threads, caches: &caches });
    }
    fixture
}

/// Two sockets of two cache clusters of two cores, no SMT.
fn server() -> MachineFixture {
    let mut fixture = MachineFixture::new().online(&[0, 1, 2, 3, 4, 5, 6, 7]);
    for id in 0..8_u32 {
        let own = id.to_string();
        let cluster = format!("{}-{}", id / 2 * 2, id / 2 * 2 + 1);
        let caches = [(2, "Unified", own.as_str()), (3, "Unified", &cluster)];
        let socket = i64::from(id / 4);
        fixture = fixture.cpu(&FixtureCpu { id, socket, threads: &own, caches: &caches });
    }
    fixture
}

#[test]
fn one_cpu_has_same_cpu_and_scheduler_only() {
    let fixture = MachineFixture::new().online(&[0]);
    let topology = CpuTopology::read(&fixture, &[0]);
    assert_eq!(topology.placements(), [CpuPlacement::SameCpu, CpuPlacement::Scheduler]);
    assert_eq!(pair(&topology, CpuPlacement::SameCpu), (0, 0));
    assert_eq!(reason(&topology, CpuPlacement::OtherCpu), "the machine has one CPU online");
}

#[test]
fn two_cores_of_a_virtual_machine_share_their_cache() {
    let fixture = MachineFixture::virtual_machine();
    let topology = CpuTopology::read(&fixture, &[0, 1]);
    let expected = [CpuPlacement::SameCpu, CpuPlacement::SameCache, CpuPlacement::Scheduler];
    assert_eq!(topology.placements(), expected);
    assert_eq!(pair(&topology, CpuPlacement::SameCpu), (1, 1));
    assert_eq!(pair(&topology, CpuPlacement::OtherCpu), (1, 0));
    assert_eq!(topology.resolve(CpuPlacement::OtherCpu), Ok(CpuPlacement::SameCache));
    assert_eq!(topology.describe(CpuPlacement::OtherCpu), "CPU 1 and CPU 0, same-cache");
    assert_eq!(topology.pair(CpuPlacement::Scheduler), Ok(CpuPair::default()));
    assert!(reason(&topology, CpuPlacement::Smt).contains("SMT"));
}

#[test]
fn a_laptop_keeps_clear_of_the_core_of_cpu_zero() {
    let topology = CpuTopology::read(&laptop(), &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(pair(&topology, CpuPlacement::SameCpu), (1, 1));
    assert_eq!(pair(&topology, CpuPlacement::Smt), (1, 5));
    assert_eq!(pair(&topology, CpuPlacement::SameCache), (1, 2));
    assert!(reason(&topology, CpuPlacement::SameSocket).contains("use same-cache"));
    assert_eq!(reason(&topology, CpuPlacement::OtherSocket), "there is one socket");
}

#[test]
fn a_server_has_pairs_with_and_without_a_shared_cache() {
    let topology = CpuTopology::read(&server(), &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(pair(&topology, CpuPlacement::SameCache), (1, 0));
    assert_eq!(pair(&topology, CpuPlacement::SameSocket), (1, 2));
    assert_eq!(pair(&topology, CpuPlacement::OtherSocket), (1, 4));
    assert_eq!(topology.resolve(CpuPlacement::OtherCpu), Ok(CpuPlacement::SameCache));
}

#[test]
fn isolated_cpus_are_preferred() {
    let fixture = laptop().file("sys/devices/system/cpu/isolated", "3,7\n");
    let topology = CpuTopology::read(&fixture, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(pair(&topology, CpuPlacement::Smt), (3, 7));
    assert_eq!(pair(&topology, CpuPlacement::SameCache), (3, 1));
}

#[test]
fn big_cores_are_preferred_to_small_ones() {
    let mut fixture = MachineFixture::new().online(&[0, 1, 2, 3]);
    for id in 0..4_u32 {
        let own = id.to_string();
        let capacity = if id < 2 { "446" } else { "1024" };
        fixture = fixture
            .cpu(&FixtureCpu { id, socket: 0, threads: &own, caches: &[] })
            .file(&format!("sys/devices/system/cpu/cpu{id}/cpu_capacity"), capacity);
    }
    let topology = CpuTopology::read(&fixture, &[0, 1, 2, 3]);
    assert_eq!(pair(&topology, CpuPlacement::SameSocket), (2, 3));
}

#[test]
fn without_listed_caches_none_is_claimed_to_be_shared() {
    let mut fixture = MachineFixture::new().online(&[0, 1, 2, 3]);
    for id in 0..4_u32 {
        let own = id.to_string();
        fixture = fixture.cpu(&FixtureCpu { id, socket: -1, threads: &own, caches: &[] });
    }
    let topology = CpuTopology::read(&fixture, &[0, 1, 2, 3]);
    assert!(reason(&topology, CpuPlacement::SameCache).contains("lists no caches"));
    assert_eq!(topology.resolve(CpuPlacement::OtherCpu), Ok(CpuPlacement::SameSocket));
    assert_eq!(pair(&topology, CpuPlacement::OtherCpu), (1, 2));
}

#[test]
fn a_cpuset_is_named_as_the_reason() {
    let topology = CpuTopology::read(&laptop(), &[2, 6]);
    assert_eq!(pair(&topology, CpuPlacement::Smt), (2, 6));
    assert_eq!(topology.resolve(CpuPlacement::OtherCpu), Ok(CpuPlacement::Smt));
    assert!(reason(&topology, CpuPlacement::SameCache).contains("among the CPUs it may use (2,6)"));
    let topology = CpuTopology::read(&laptop(), &[5]);
    assert_eq!(pair(&topology, CpuPlacement::SameCpu), (5, 5));
    assert!(reason(&topology, CpuPlacement::OtherCpu).contains("only CPU 5 of the 8 online"));
}

#[test]
fn a_machine_that_tells_nothing_still_has_a_cpu() {
    let topology = CpuTopology::read(&MachineFixture::new(), &[]);
    assert_eq!(pair(&topology, CpuPlacement::SameCpu), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn garbage_never_leaves_the_allowed_cpus(
        texts in prop::collection::vec("[0-9,\\-a-z\n]{0,12}", 9),
        allowed in prop::collection::vec(0_u32..3, 1..4),
    ) {
        let mut fixture = MachineFixture::with("sys/devices/system/cpu/online", "0-2");
        for (id, texts) in texts.chunks(3).enumerate() {
            let base = format!("sys/devices/system/cpu/cpu{id}");
            fixture = fixture
                .file(&format!("{base}/topology/physical_package_id"), &texts[0])
                .file(&format!("{base}/topology/thread_siblings_list"), &texts[1])
                .file(&format!("{base}/cache/index0/shared_cpu_list"), &texts[2]);
        }
        let topology = CpuTopology::read(&fixture, &allowed);
        for placement in topology.placements() {
            let pair = topology.pair(placement).unwrap();
            prop_assert!(pair.local.is_none_or(|cpu| allowed.contains(&cpu)));
            prop_assert!(pair.peer.is_none_or(|cpu| allowed.contains(&cpu)));
        }
    }
}
