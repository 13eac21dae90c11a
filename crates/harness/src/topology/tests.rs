//! Placements on machines of many shapes.

use super::*;
use crate::environment::tests::{FixtureCpu, MachineFixture};
use proptest::prelude::*;

/// The CPUs of each placement on a machine of which these may be used: a pair, or why there is none.
fn placed(fixture: &MachineFixture, allowed: &[u32], pairs: &[(CpuPlacement, [u32; 2], &str)]) {
    let topology = CpuTopology::read(fixture, allowed);
    for (placement, cpus, reason) in pairs {
        match topology.pair(*placement) {
            Ok(pair) => assert_eq!([pair.local, pair.peer], cpus.map(Some), "{placement}"),
            Err(error) => {
                assert!(!reason.is_empty() && error.reason.contains(reason), "{}", error.reason);
            }
        }
    }
}

const ALL: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

const NONE: [u32; 2] = [u32::MAX; 2];

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

/// Cores of one thread each and no listed caches, on this socket.
fn cores(count: u32, socket: i64) -> MachineFixture {
    let ids: Vec<u32> = (0..count).collect();
    ids.iter().fold(MachineFixture::new().online(&ids), |fixture, &id| {
        let threads = &id.to_string();
        fixture.cpu(&FixtureCpu { id, socket, threads, caches: &[] })
    })
}

#[test]
fn each_machine_has_its_pairs_and_its_reasons() {
    use CpuPlacement::{OtherCpu, OtherSocket, SameCache, SameCpu, SameSocket, Smt};
    let single = MachineFixture::new().online(&[0]);
    let one_online = (OtherCpu, NONE, "the machine has one CPU online");
    placed(&single, &[0], &[(SameCpu, [0, 0], ""), one_online]);
    // A machine that exposes no topology still has a CPU.
    placed(&MachineFixture::new(), &[], &[(SameCpu, [0, 0], "")]);
    // It keeps clear of the core of CPU 0.
    let of_laptop = [
        (SameCpu, [1, 1], ""),
        (Smt, [1, 5], ""),
        (SameCache, [1, 2], ""),
        (SameSocket, NONE, "use same-cache"),
        (OtherSocket, NONE, "there is one socket"),
    ];
    placed(&laptop(), &ALL, &of_laptop);
    let of_server = [(SameCache, [1, 0], ""), (SameSocket, [1, 2], ""), (OtherSocket, [1, 4], "")];
    placed(&server(), &ALL, &of_server);
    // Isolated CPUs are preferred, and big cores to small ones.
    let isolated = laptop().file("sys/devices/system/cpu/isolated", "3,7\n");
    placed(&isolated, &ALL, &[(Smt, [3, 7], ""), (SameCache, [3, 1], "")]);
    let capacities = (0..4).fold(cores(4, 0), |fixture, id| {
        let capacity = if id < 2 { "446" } else { "1024" };
        fixture.file(&format!("sys/devices/system/cpu/cpu{id}/cpu_capacity"), capacity)
    });
    placed(&capacities, &ALL[..4], &[(SameSocket, [2, 3], "")]);
    let unlisted = (SameCache, NONE, "lists no caches");
    placed(&cores(4, -1), &ALL[..4], &[unlisted, (OtherCpu, [1, 2], "")]);
    // A cpuset is named as the reason.
    let among = (SameCache, NONE, "among the CPUs it may use (2,6)");
    placed(&laptop(), &[2, 6], &[(Smt, [2, 6], ""), among]);
    let only = (OtherCpu, NONE, "only CPU 5 of the 8 online");
    placed(&laptop(), &[5], &[(SameCpu, [5, 5], ""), only]);
}

#[test]
fn other_cpu_is_the_nearest_that_there_is() {
    for (fixture, allowed, nearest) in [
        (server(), &ALL[..], CpuPlacement::SameCache),
        (cores(4, -1), &ALL[..4], CpuPlacement::SameSocket),
        (laptop(), &[2, 6][..], CpuPlacement::Smt),
    ] {
        let topology = CpuTopology::read(&fixture, allowed);
        assert_eq!(topology.resolve(CpuPlacement::OtherCpu), Ok(nearest));
    }
    let single = CpuTopology::read(&MachineFixture::new().online(&[0]), &[0]);
    assert_eq!(single.placements(), [CpuPlacement::SameCpu, CpuPlacement::Scheduler]);
}

#[test]
fn two_cores_of_a_virtual_machine_share_their_cache() {
    let fixture = MachineFixture::virtual_machine();
    let topology = CpuTopology::read(&fixture, &[0, 1]);
    let expected = [CpuPlacement::SameCpu, CpuPlacement::SameCache, CpuPlacement::Scheduler];
    assert_eq!(topology.placements(), expected);
    assert_eq!(topology.resolve(CpuPlacement::OtherCpu), Ok(CpuPlacement::SameCache));
    assert_eq!(topology.describe(CpuPlacement::OtherCpu), "CPU 1 and CPU 0, same-cache");
    assert_eq!(topology.pair(CpuPlacement::Scheduler), Ok(CpuPair::default()));
    let cpus = [(CpuPlacement::SameCpu, [1, 1], ""), (CpuPlacement::Smt, NONE, "SMT")];
    placed(&fixture, &[0, 1], &cpus);
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
