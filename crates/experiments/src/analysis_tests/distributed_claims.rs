//! Claims of study `distributed`: results that give *holds*, and results that give *does not hold*.

use plumb_analysis::fixture::SyntheticRun;

use super::stack_claims::{factors, results};
use super::verdict_pairs::VerdictPair;

pub(super) const PAIRS: &[VerdictPair] = &[
    (&["distributed.pollution.network-becomes-useless"], |holds| {
        let at = |garbage: &str| format!("garbage={garbage} kind=unicast hosts=fast");
        let full = if holds { 4e4 } else { 6e5 };
        results("stack.pollution", "throughput", &[(&at("0%"), 1.2e6), (&at("100%"), full)])
    }),
    (&["distributed.pollution.zero-is-broadcast"], |holds| {
        let taken = if holds { 0.3 } else { 0.004 };
        results("stack.pollution", "taken", &[("garbage=25% kind=stray-0 hosts=slow", taken)])
    }),
    (&["distributed.pollution.broadcasts-halt-hosts"], |holds| {
        let busy = if holds { 0.99 } else { 0.2 };
        results("stack.pollution", "busy", &[("garbage=25% kind=broadcast hosts=slow", busy)])
    }),
    (&["distributed.nic.small-receive-buffer"], |holds| {
        let at = |window: u64| format!("window={window} card=4Ki receiver=8mhz");
        let large = if holds { 0.19 } else { 0.001 };
        results("stack.nic", "retransmitted", &[(&at(4_096), 0.001), (&at(8_192), large)])
    }),
    (&["distributed.remote.telnet-moderate-load"], |holds| {
        remote("load=25%", [1e3, if holds { 0.85e3 } else { 1e3 }])
    }),
    (&["distributed.remote.telnet-near-capacity"], |holds| {
        remote("load=lines", [1e3, if holds { 0.5e3 } else { 0.95e3 }])
    }),
    (&["distributed.remote.traffic-doubles"], |holds| {
        let at = |server: &str| format!("server={server} load=lines mainframe=1x connections=1");
        let wire = if holds { 4.0 } else { 2.1 };
        results("stack.remote", "wire", &[(&at("local"), 2.0), (&at("remote"), wire)])
    }),
    (&["distributed.remote.mainframe-bounds-low-rates"], |holds| {
        let levels = "load=lines mainframe=0.25x connections=1";
        let at = |server: &str| format!("server={server} {levels}");
        let slow = if holds { 0.98e3 } else { 0.5e3 };
        results("stack.remote", "throughput", &[(&at("local"), 1e3), (&at("remote"), slow)])
    }),
    (&["distributed.remote.connections-share-capacity"], |holds| {
        let at = |count: u64| format!("server=remote load=file mainframe=1x connections={count}");
        let fourth = if holds { 0.25e4 } else { 0.9e4 };
        results("stack.remote", "throughput", &[(&at(1), 1e4), (&at(4), fourth)])
    }),
    (&["distributed.remote.average-load-is-small"], |holds| {
        let busy = if holds { 0.1 } else { 0.8 };
        let at = "server=remote load=screens mainframe=1x connections=8";
        results("stack.remote", "busy", &[(at, busy)])
    }),
    (&["distributed.remote.delay-behaves-alike"], |holds| {
        let at = |server: &str, load: &str| {
            format!("server={server} load={load} mainframe=1x connections=1")
        };
        let (low, high) = if holds { (1.2e7, 4e7) } else { (2e7, 2e7) };
        let levels =
            [at("local", "25%"), at("remote", "25%"), at("local", "75%"), at("remote", "75%")];
        let [a, b, c, d] = &levels;
        results("stack.remote", "delay", &[(a, 1e7), (b, low), (c, 1e7), (d, high)])
    }),
    (&["distributed.remote.ftp"], |holds| {
        let at = |server: &str| format!("server={server} load=file mainframe=0.6x connections=1");
        let file = if holds { 0.8e4 } else { 0.99e4 };
        results("stack.remote", "throughput", &[(&at("local"), 1e4), (&at("remote"), file)])
    }),
    (
        &[
            "distributed.transport.kernel-beats-process",
            "distributed.transport.switches-cost-throughput",
        ],
        |holds| {
            transports(&[
                ("tcp", "pipelined-incremental", 2e6),
                ("process-tcp", "pipelined-incremental", if holds { 1e6 } else { 1.9e6 }),
                ("tcp", "incremental", 4e4),
                ("process-tcp", "incremental", 3.2e4),
            ])
        },
    ),
    (&["distributed.transport.pup-responds-ip-carries"], |holds| {
        let stream = if holds { 5e4 } else { 3e4 };
        transports(&[
            ("byte-stream", "incremental", stream),
            ("tcp", "incremental", 4e4),
            ("byte-stream", "batch", 4e6),
            ("tcp", "batch", 1.1e7),
        ])
    }),
    (&["distributed.transport.kernel-responds-faster"], |holds| {
        let process = if holds { 3e4 } else { 5e4 };
        transports(&[("tcp", "incremental", 4e4), ("process-tcp", "incremental", process)])
    }),
    (
        &[
            "distributed.transport.ikp-process-still-wins",
            "distributed.transport.ikp-is-the-optimum",
        ],
        |holds| {
            let messages = if holds { 3e6 } else { 0.5e6 };
            transports(&[
                ("messages", "batch", messages),
                ("tcp", "batch", 2e6),
                ("process-tcp", "batch", 1e6),
                ("unix", "batch", 2.5e6),
            ])
        },
    ),
    (&["distributed.transport.advantage-shrinks-below-telnet"], |holds| {
        let relay = if holds { 2e4 } else { 4.5e4 };
        transports(&[
            ("messages", "incremental", 4e4),
            ("tcp", "incremental", 4e4),
            ("relay-terminal", "incremental", relay),
        ])
    }),
    (&["distributed.rect.a-millisecond-an-item"], |holds| {
        let batch = if holds { 1.2e5 } else { 8e6 };
        transports(&[("direct", "batch", batch), ("messages", "incremental", 4e4)])
    }),
    (&["distributed.cpu.total-cost-is-higher"], |holds| {
        let tcp = if holds { 400.0 } else { 60.0 };
        let at = |transport: &str| format!("transport={transport} mode=batch placement=same-cpu");
        results("display.transport", "cpu", &[(&at("direct"), 100.0), (&at("tcp"), tcp)])
    }),
    (&["distributed.buffers.chunk-a-connection"], |holds| {
        let at = |buffers: &str| format!("path=memory buffers={buffers}");
        let large = if holds { 1.01e8 } else { 1.2e8 };
        let [one, small, more] = ["chunks", "small-chunks", "large-chunks"].map(at);
        results("stack.buffers", "throughput", &[(&one, 1e8), (&small, 0.9e8), (&more, large)])
    }),
    (&["distributed.tcp.large-protocol", "distributed.remote.memory-saved"], |holds| {
        let [code, data] = if holds { [3.6e5, 3.7e5] } else { [2.4e5, 3.3e5] };
        let at = |transport: &str| {
            factors(&format!("transport={transport} mode=batch placement=same-cpu"))
        };
        let mut run = SyntheticRun::new(1);
        for (transport, memory, bytes) in [
            ("process-tcp", "code", code),
            ("byte-stream", "code", 2.9e5),
            ("messages", "code", 2.8e5),
            ("process-tcp", "data", data),
            ("messages", "data", 3.4e5),
        ] {
            run.measure("display.transport", memory, at(transport), bytes);
        }
        run
    }),
    (&["distributed.priority.server-first-sends-more-packets"], |holds| {
        let at = |priority: &str| format!("priority={priority} mode=pipelined-incremental");
        let relay = if holds { 60.0 } else { 3.0 };
        results("display.priority", "writes", &[(&at("relay"), 4.0), (&at("relay-first"), relay)])
    }),
    (
        &[
            "distributed.chunk.fewer-messages-and-bursts",
            "distributed.transport.flexible-server-costs-speed",
        ],
        |holds| {
            let at = |entry: &str, write: u64| {
                format!("path=memory packet=1024 entry={entry} write={write}")
            };
            let message = if holds { [2e7, 8e7] } else { [2.8e8, 2.3e8] };
            let levels =
                [at("call", 1_024), at("call", 4_096), at("message", 1_024), at("message", 4_096)];
            let [a, b, c, d] = &levels;
            let cells = [(a.as_str(), 2e8), (b, 2.02e8), (c, message[0]), (d, message[1])];
            results("stack.chunk", "throughput", &cells)
        },
    ),
    (&["distributed.timeouts.dynamic-ones-cost"], |holds| {
        let at = |timeout: &str| {
            format!("load=file path=memory tcp=today timeout={timeout} acks=delayed")
        };
        let fixed = if holds { 1.1e9 } else { 0.9e9 };
        results("stack.timeouts", "throughput", &[(&at("dynamic"), 1e9), (&at("1s"), fixed)])
    }),
    (&["distributed.timeouts.local-variation-is-small"], |holds| {
        short_timeouts("none", if holds { 1e5 } else { 0.95e6 })
    }),
    (&["distributed.tcp.simplified-design-fails"], |holds| {
        short_timeouts("rare", if holds { 1e5 } else { 0.95e6 })
    }),
    (&["distributed.timeouts.no-fixed-value-suits-all"], |holds| {
        let mut run = SyntheticRun::new(1);
        for (timeout, delay, rate) in
            [("100ms", if holds { 2e6 } else { 9e6 }, 1e5), ("1s", 6e6, 9e5)]
        {
            let lan = format!("load=terminal path=lan errors=rare tcp=early timeout={timeout}");
            run.measure("stack.timeouts", "delay", factors(&lan), delay);
            let far = format!("load=file path=slow-host errors=none tcp=early timeout={timeout}");
            run.measure("stack.timeouts", "throughput", factors(&far), rate);
        }
        run
    }),
    (&["distributed.display.construction-is-offered-load"], |holds| {
        let at = |mode: &str| format!("path=tcp mode={mode}");
        let batch = if holds { 4e6 } else { 9e6 };
        let levels = [at("construction"), at("batch"), at("incremental")];
        let [a, b, c] = &levels;
        results("display.vector", "rate", &[(a.as_str(), 8e6), (b, batch), (c, 4e4)])
    }),
    (&["distributed.link.more-users-not-faster-ones"], |holds| {
        let mut run = SyntheticRun::new(1);
        for (users, slow) in [(1, 5.5e4), (16, if holds { 2.2e4 } else { 5.4e4 })] {
            for (levels, rate) in [
                ("link=3mbit host=4x", slow),
                ("link=10mbit host=4x", 5.5e4),
                ("link=100mbit host=1x", slow),
                ("link=100mbit host=4x", 5.5e4),
            ] {
                let levels = factors(&format!("{levels} users={users}"));
                run.measure("link.users", "throughput", levels, rate);
            }
        }
        run
    }),
    (&["distributed.vector.inner-loop"], |holds| {
        let tuned = if holds { 3e6 } else { 1.1e6 };
        let at = |mode: &str| format!("path=direct mode={mode}");
        results("display.vector", "rate", &[(&at("display"), tuned), (&at("display-plain"), 1e6)])
    }),
    (&["distributed.buffers.telnet-inundates"], |holds| {
        let again = if holds { 0.4 } else { 0.001 };
        results(
            "stack.buffers",
            "retransmitted",
            &[("path=slow-reader buffers=fixed tcp=early", again)],
        )
    }),
    (&["distributed.buffers.many-sizes-cost"], |holds| {
        let mut run = buffers("memory", "throughput", [("preallocated", 1.1e9), ("sized", 1e9)]);
        for (policy, again) in [("fixed", if holds { 0.4 } else { 0.01 }), ("sized", 0.05)] {
            let levels = factors(&format!("path=slow-reader buffers={policy} tcp=early"));
            run.measure("stack.buffers", "retransmitted", levels, again);
        }
        run
    }),
    (&["distributed.tcp.best-throughput"], |holds| {
        let rate = if holds { 1e9 } else { 3e4 };
        results("stack.buffers", "throughput", &[("path=memory buffers=ring", rate)])
    }),
    (&["distributed.tcp.telnet-uses-a-tenth"], |holds| {
        let mut run = SyntheticRun::new(1);
        let text = if holds { 2e7 } else { 3e8 };
        let at = factors("path=tcp mode=pipelined-incremental");
        run.measure("display.text", "rate", at, text);
        run.measure("display.vector", "rate", factors("path=tcp mode=construction"), 2e7);
        run
    }),
    (&["distributed.nic.bandwidth-exceeds-interface"], |holds| {
        let mut run = SyntheticRun::new(1);
        let (rate, busy) = if holds { (5.5e4, 0.97) } else { (1.1e6, 0.4) };
        for (response, value) in [("throughput", rate), ("busy", busy)] {
            let levels = factors("users=1 host=1x link=10mbit");
            run.measure("link.users", response, levels, value);
        }
        run
    }),
    (&["distributed.nic.smart-controllers-are-slower"], |holds| {
        let card = if holds { 2e7 } else { 9e7 };
        let at = |change: &str| format!("change={change} link=1gbit");
        results("host.model", "throughput", &[(&at("none"), 5e7), (&at("card"), card)])
    }),
    (&["distributed.tcp.errors-cost-tenfold"], |holds| {
        defects("load=file path=lan", "throughput", 1e6, if holds { 1e5 } else { 0.8e6 })
    }),
    (&["distributed.tcp.silly-windows"], |holds| {
        defects("load=slow-reader path=lan", "payload", 1_000.0, if holds { 40.0 } else { 1_000.0 })
    }),
    (&["distributed.timeouts.mismatch-halves-throughput"], |holds| {
        timeouts("path=slow-host errors=none", "throughput", 1e6, if holds { 1e5 } else { 0.9e6 })
    }),
    (&["distributed.timeouts.mismatch-delays-telnet"], |holds| {
        timeouts("path=slow-host errors=none", "delay", 1e6, if holds { 3e6 } else { 1e6 })
    }),
    (&["distributed.timeouts.four-seconds-lose-ten-percent"], |holds| {
        let mut run = SyntheticRun::new(1);
        for (timeout, rate) in [("250ms", 1e6), ("4s", if holds { 0.91e6 } else { 0.3e6 })] {
            let levels = format!("load=file path=lan errors=rare tcp=early timeout={timeout}");
            run.measure("stack.timeouts", "throughput", factors(&levels), rate);
        }
        run
    }),
    (&["distributed.timeouts.early-acks-lose-one-percent"], |holds| {
        let at =
            |acks: &str| format!("load=file path=memory tcp=today timeout=dynamic acks={acks}");
        let prompt = if holds { 0.99e9 } else { 0.8e9 };
        results("stack.timeouts", "throughput", &[(&at("delayed"), 1e9), (&at("prompt"), prompt)])
    }),
    (&["distributed.timeouts.internets-need-dynamic"], |holds| {
        timeouts("path=internet errors=none", "throughput", 1e5, if holds { 0.5e5 } else { 1e5 })
    }),
    (&["distributed.timeouts.lans-need-dynamic"], |holds| {
        timeouts("path=lan errors=rare", "throughput", 1e6, if holds { 0.5e6 } else { 1e6 })
    }),
    (&["distributed.timeouts.error-rate"], |holds| {
        timeouts("path=lan errors=varying", "throughput", 1e6, if holds { 0.5e6 } else { 1e6 })
    }),
    (&["distributed.buffers.small-packets-inundate"], |holds| {
        buffers(
            "slow-reader",
            "throughput",
            [("ring", 4e3), ("fixed", if holds { 2e2 } else { 4e3 })],
        )
    }),
    (&["distributed.buffers.traffic-hints"], |holds| {
        let mut run = SyntheticRun::new(1);
        let at = factors("path=slow-reader buffers=hinted tcp=early");
        run.measure("stack.buffers", "retransmitted", at, if holds { 0.001 } else { 0.5 });
        run
    }),
    (&["distributed.buffers.chunked-free-lists"], |holds| {
        buffers(
            "memory",
            "throughput",
            [("chunks", 1e9), ("malloc", if holds { 0.97e9 } else { 1.2e9 })],
        )
    }),
    (&["distributed.chunk.four-kilobytes-carry-more"], |holds| {
        let at = |write: u64| format!("path=memory packet=1024 entry=message write={write}");
        let more = if holds { 1.2e8 } else { 3e8 };
        results("stack.chunk", "throughput", &[(&at(1_024), 1e8), (&at(4_096), more)])
    }),
    (&["distributed.transport.larger-packets"], |holds| {
        let at = |packet: u64| format!("path=memory entry=call write=4096 packet={packet}");
        let small = if holds { 3e8 } else { 1e9 };
        let cells = [(at(128), small), (at(200), small), (at(1_024), 1e9)];
        results(
            "stack.chunk",
            "throughput",
            &cells.each_ref().map(|(at, rate)| (at.as_str(), *rate)),
        )
    }),
    (&["distributed.rect.stop-and-wait"], |holds| {
        let far = if holds { 5.0 } else { 5_000.0 };
        display_rect(&[("lan", [41.0, 61.0, 310.0, 1_070.0]), ("wan", [far, 6_000.0, 7e3, 8e3])])
    }),
    (&["distributed.rect.each-step-helps"], |holds| {
        let structured = if holds { 1_070.0 } else { 200.0 };
        display_rect(&[("unix", [41.0, 61.0, 310.0, structured])])
    }),
    (&["distributed.rect.pipelining-gain"], |holds| {
        let remote = if holds { 66.0 } else { 10.0 };
        display_rect(&[
            ("unix", [41.0, 61.0, 310.0, 1_070.0]),
            ("lan", [5.0, remote, 180.0, 670.0]),
        ])
    }),
    (&["distributed.rect.batching-gain"], |holds| {
        let batch = if holds { 310.0 } else { 3_100.0 };
        display_rect(&[("unix", [41.0, 61.0, batch, 1_070.0])])
    }),
    (&["distributed.rect.structure-gain"], |holds| {
        let structured = if holds { 1_070.0 } else { 10_700.0 };
        display_rect(&[("unix", [41.0, 61.0, 310.0, structured])])
    }),
    (&["distributed.rect.pipelined"], |holds| {
        slow_paths(
            "display.rect",
            "pipelined-incremental",
            [61.0, if holds { 66.0 } else { 30.0 }, 36.0],
        )
    }),
    (&["distributed.rect.batch"], |holds| {
        slow_paths("display.rect", "batch", [310.0, 180.0, if holds { 81.0 } else { 200.0 }])
    }),
    (&["distributed.rect.structured"], |holds| {
        slow_paths(
            "display.rect",
            "structured",
            [if holds { 1_070.0 } else { 400.0 }, 670.0, 370.0],
        )
    }),
    (&["distributed.vector.construction"], |holds| {
        slow_paths(
            "display.vector",
            "construction",
            [if holds { 440.0 } else { 100.0 }, 220.0, 130.0],
        )
    }),
    (&["distributed.vector.batch"], |holds| {
        slow_paths("display.vector", "batch", [220.0, if holds { 350.0 } else { 200.0 }, 120.0])
    }),
    (&["distributed.vector.incremental"], |holds| {
        let lan = if holds { 87.0 } else { 50.0 };
        slow_paths("display.vector", "pipelined-incremental", [62.0, lan, 39.0])
    }),
    (&["distributed.vector.display-rate"], |holds| {
        let local = if holds { 430.0 } else { 4e6 };
        slow_paths("display.vector", "display", [local, 430.0, 430.0])
    }),
    (&["distributed.display.rate-not-affected-by-distribution"], |holds| {
        slow_paths("display.vector", "display", [430.0, 430.0, if holds { 430.0 } else { 100.0 }])
    }),
    (&["distributed.vector.batch-beats-incremental"], |holds| {
        let at = |mode: &str| format!("path=unix mode={mode}");
        let batch = if holds { 220.0 } else { 50.0 };
        let cells =
            [(at("batch"), batch), (at("incremental"), 20.0), (at("pipelined-incremental"), 62.0)];
        results("display.vector", "rate", &cells.each_ref().map(|(at, rate)| (at.as_str(), *rate)))
    }),
    (&["distributed.text.rates"], |holds| {
        let lan = if holds { 4_300.0 } else { 9_000.0 };
        slow_paths("display.text", "pipelined-incremental", [7_700.0, lan, 1_900.0])
    }),
    (&["distributed.memory.vector"], |holds| {
        memory("polygon", if holds { 12_600.0 } else { 25_200.0 }, 80_000.0)
    }),
    (&["distributed.memory.rect-unstructured"], |holds| {
        memory("array", if holds { 15_600.0 } else { 45_600.0 }, 34_000.0)
    }),
    (&["distributed.memory.rect-structured"], |holds| {
        memory("structured-array", if holds { 900.0 } else { 9_000.0 }, 34_000.0)
    }),
    (&["distributed.sensitivity.processor-most-network-least"], |holds| {
        let mut run = workstations("batch", [210.0, if holds { 175.0 } else { 209.0 }]);
        for (link, rate) in [("3mbit", 210.0), ("arpanet", if holds { 120.0 } else { 2.0 })] {
            let levels = factors(&format!("processors=slow link={link} mode=batch"));
            run.measure("display.link", "rate", levels, rate);
        }
        run
    }),
    (&["distributed.cpu.workstation-gain"], |holds| {
        workstations("batch", [210.0, if holds { 180.0 } else { 100.0 }])
    }),
    (&["distributed.cpu.table-4-1-batch"], |holds| {
        workstations("batch", [210.0, if holds { 180.0 } else { 300.0 }])
    }),
    (&["distributed.cpu.host-gain"], |holds| {
        hosts("construction", [210.0, if holds { 150.0 } else { 100.0 }])
    }),
    (&["distributed.cpu.table-4-3"], |holds| {
        let at = "workstation=1x mode=batch";
        let lan = if holds { 380.0 } else { 180.0 };
        let cells =
            [(format!("place=lan host=1x {at}"), lan), (format!("place=local {at}"), 220.0)];
        results("display.cpu", "rate", &cells.each_ref().map(|(at, rate)| (at.as_str(), *rate)))
    }),
    (&["distributed.cpu.workstation-matters-more"], |holds| {
        workstations("batch", [210.0, if holds { 175.0 } else { 209.0 }])
    }),
    (&["distributed.link.telephone-line"], |holds| {
        let at = "processors=slow link=1200bit mode=construction";
        results("display.link", "rate", &[(at, if holds { 7.0 } else { 1.0 })])
    }),
    (&["distributed.link.sixty-times-the-bandwidth"], |holds| {
        display_link("batch", [("arpanet", if holds { 180.0 } else { 20.0 }), ("3mbit", 220.0)])
    }),
    (&["distributed.link.three-or-ten-megabits"], |holds| {
        display_link("batch", [("3mbit", if holds { 210.0 } else { 100.0 }), ("10mbit", 220.0)])
    }),
    (&["distributed.link.structure-at-9600-near-ethernet"], |holds| {
        let slow = if holds { 320.0 } else { 84.0 };
        display_link("structured", [("9600bit", slow), ("10mbit", 380.0)])
    }),
    (&["distributed.rect.batching-alone"], |holds| {
        let batch = if holds { 180.0 } else { 1_800.0 };
        display_rect(&[("slow-lan", [5.0, 66.0, batch, 2_000.0])])
    }),
    (&["distributed.rect.batching-cause"], |holds| {
        let mut run = display_rect(&[
            ("wan", [1.0, 60.0, if holds { 180.0 } else { 1.1 }, 670.0]),
            ("lan", [5.0, 66.0, 180.0, 670.0]),
        ]);
        round_trips(&mut run, [("incremental", 780.0), ("batch", 3.0)]);
        run
    }),
    (&["distributed.rect.pipelining-cause"], |holds| {
        let mut run = display_rect(&[
            ("slow-lan", [5.0, if holds { 66.0 } else { 6.0 }, 180.0, 670.0]),
            ("slow-local", [41.0, 61.0, 310.0, 1_070.0]),
        ]);
        round_trips(&mut run, [("incremental", 780.0), ("pipelined-incremental", 1.0)]);
        run
    }),
    (&["distributed.rect.remote-incremental-beats-local"], |holds| {
        let lan = if holds { 66.0 } else { 30.0 };
        slow_paths("display.rect", "pipelined-incremental", [61.0, lan, 36.0])
    }),
    (&["distributed.rect.structure-cause"], |holds| {
        let structured = if holds { 1_200.0 } else { 15_000.0 };
        let cells = [("path=tcp mode=batch", 16_000.0), ("path=tcp mode=structured", structured)];
        results("display.rect", "bytes", &cells)
    }),
    (
        &[
            "distributed.rect.arpanet-structure-beats-local",
            "distributed.rect.ethernet-structure-beats-local-batch",
        ],
        |holds| {
            let far = if holds { 370.0 } else { 200.0 };
            display_rect(&[
                ("slow-local", [41.0, 61.0, 310.0, 1_070.0]),
                ("slow-lan", [5.0, 66.0, 180.0, far]),
                ("slow-arpanet", [2.0, 36.0, 81.0, far]),
            ])
        },
    ),
    (&["distributed.link.network-slower-than-local"], |holds| {
        let lan = if holds { 5.0 } else { 50.0 };
        slow_paths("display.rect", "incremental", [41.0, lan, 2.0])
    }),
    (&["distributed.level.beats-transport"], |holds| {
        let tcp = if holds { 1_070.0 } else { 42.0 };
        display_rect(&[("unix", [60.0, 90.0, 400.0, 1_500.0]), ("tcp", [41.0, 61.0, 310.0, tcp])])
    }),
    (
        &[
            "distributed.link.table-8-1-construction",
            "distributed.link.table-8-1-batch",
            "distributed.link.delay-not-bandwidth",
        ],
        |holds| {
            let mut run = SyntheticRun::new(1);
            for mode in ["construction", "batch"] {
                let (arpanet, near) = if holds { (130.0, 200.0) } else { (260.0, 265.0) };
                let links =
                    [("3mbit", 220.0), ("10mbit", 230.0), ("arpanet", arpanet), ("56kbit", near)];
                add_links(&mut run, mode, &links);
            }
            run
        },
    ),
    (
        &[
            "distributed.link.table-8-2-construction",
            "distributed.link.table-8-2-batch",
            "distributed.link.slightly-less-than-linear",
        ],
        |holds| lines([7.4, 14.0, 27.0, if holds { 54.0 } else { 29.0 }], 166.0),
    ),
    (
        &[
            "distributed.link.table-8-2-structure",
            "distributed.link.bandwidth-insignificant",
            "distributed.link.sensitivity-follows-requirements",
        ],
        |holds| {
            let mut run = lines([7.4, 14.0, 27.0, 54.0], 166.0);
            let slowest = if holds { 84.0 } else { 4.0 };
            let ethernet = if holds { 380.0 } else { 900.0 };
            let links = [("1200bit", slowest), ("9600bit", 320.0), ("10mbit", ethernet)];
            add_links(&mut run, "structured", &links);
            run
        },
    ),
    (
        &[
            "distributed.link.structure-at-1200-beats-local",
            "distributed.link.structure-at-1200-beats-arpanet-batch",
        ],
        |holds| {
            let mut run = display_rect(&[("slow-local", [41.0, 61.0, 310.0, 1_070.0])]);
            add_links(&mut run, "structured", &[("1200bit", if holds { 84.0 } else { 20.0 })]);
            add_links(&mut run, "batch", &[("arpanet", 60.0)]);
            run
        },
    ),
    (&["distributed.level.reduces-degradation"], |holds| {
        let mut run = SyntheticRun::new(1);
        add_links(&mut run, "incremental", &[("10mbit", 5.0), ("arpanet", 1.0)]);
        let least = if holds { 300.0 } else { 30.0 };
        for mode in ["pipelined-incremental", "batch", "structured"] {
            add_links(&mut run, mode, &[("10mbit", 500.0), ("arpanet", least)]);
        }
        run
    }),
    (&["distributed.display.overhead-independent-of-network"], |holds| {
        let mut run = SyntheticRun::new(1);
        for (link, built) in [("10mbit", 230.0), ("3mbit", 220.0), ("arpanet", 130.0)] {
            let added = if holds || link != "arpanet" { 1.0 / 300.0 } else { 1.0 / 30.0 };
            add_links(&mut run, "construction", &[(link, built)]);
            add_links(&mut run, "batch", &[(link, 1.0 / (1.0 / built + added))]);
        }
        run
    }),
    (&["distributed.link.offered-load"], |holds| {
        let mut run = SyntheticRun::new(1);
        let items = if holds { 230.0 } else { 23_000.0 };
        add_links(&mut run, "construction", &[("10mbit", items)]);
        let levels = factors("processors=slow link=10mbit mode=construction");
        run.constant("display.link", "bytes", levels, 780.0 * 20.0);
        run
    }),
    (
        &[
            "distributed.cpu.can-beat-local",
            "distributed.cpu.concurrency-is-the-cause",
            "distributed.cpu.table-4-4",
            "distributed.level.remote-host-outweighs-network",
        ],
        |holds| {
            let (near, far) = if holds { (350.0, 140.0) } else { (180.0, 60.0) };
            let mut run = SyntheticRun::new(1);
            for (mode, local, near) in [
                ("construction", 440.0, 230.0),
                ("batch", 220.0, near),
                ("pipelined-incremental", 62.0, near / 4.0),
            ] {
                let at = [
                    ("place=local workstation=1x".to_owned(), local),
                    ("place=lan workstation=1x host=1x".to_owned(), near),
                    ("place=lan workstation=1x host=0.25x".to_owned(), 100.0),
                    ("place=arpanet workstation=1x host=1x".to_owned(), far),
                ];
                for (levels, rate) in at {
                    let levels = factors(&format!("{levels} mode={mode}"));
                    run.measure("display.cpu", "rate", levels, rate);
                }
            }
            run
        },
    ),
    (&["distributed.cpu.table-4-1-text"], |holds| {
        workstations("text", [7_700.0, if holds { 6_700.0 } else { 9_000.0 }])
    }),
    (&["distributed.cpu.table-4-2-construction"], |holds| {
        hosts("construction", [170.0, if holds { 110.0 } else { 200.0 }])
    }),
    (&["distributed.cpu.table-4-2-text"], |holds| {
        hosts("text", [4_300.0, if holds { 2_300.0 } else { 5_000.0 }])
    }),
    (&["distributed.cpu.much-faster-host"], |holds| {
        let at = |host: &str| format!("place=lan workstation=1x host={host} mode=construction");
        let slow = if holds { 60.0 } else { 180.0 };
        results("display.cpu", "rate", &[(&at("1x"), 200.0), (&at("0.25x"), slow)])
    }),
    (&["distributed.cpu.remote-bound-ignores-workstation"], |holds| {
        workstations("computing", [60.0, if holds { 59.0 } else { 48.0 }])
    }),
    (&["distributed.cpu.heavy-computation-gains-more"], |holds| {
        let mut run = SyntheticRun::new(1);
        for (mode, local, remote) in
            [("batch", 30.0, 31.0), ("computing", 2.0, if holds { 8.0 } else { 2.0 })]
        {
            for (place, rate) in [("place=local", local), ("place=lan host=1x", remote)] {
                let levels = factors(&format!("{place} workstation=0.25x mode={mode}"));
                run.measure("display.cpu", "rate", levels, rate);
            }
        }
        run
    }),
    (
        &[
            "distributed.ikp.early-reply",
            "distributed.ikp.synchrony-costs-concurrency",
            "distributed.transport.implementation-beats-protocol",
        ],
        |holds| {
            let rates = if holds { [1.0e6, 1.4e6, 1.1e6] } else { [1.0e6, 1.05e6, 0.5e6] };
            let mut run = SyntheticRun::new(1);
            for mode in ["batch", "pipelined-incremental"] {
                for (transport, rate) in
                    ["messages", "messages-early", "tcp"].into_iter().zip(rates)
                {
                    let levels = factors(&format!("transport={transport} mode={mode}"));
                    run.measure("display.transport", "rate", levels, rate);
                }
            }
            run
        },
    ),
    (
        &[
            "distributed.priority.batch",
            "distributed.priority.incremental",
            "distributed.priority.application-first",
        ],
        |holds| {
            let client = if holds { 58.0 } else { 40.0 };
            let mut run = SyntheticRun::new(1);
            for (mode, times) in [("pipelined-incremental", 3.5), ("incremental", 1.0)] {
                let relay = if mode == "incremental" { 48.0 } else { 44.0 };
                for (priority, rate) in
                    [("relay", 47.0), ("relay-first", relay), ("client-first", client)]
                {
                    let levels = factors(&format!("priority={priority} mode={mode}"));
                    run.measure("display.priority", "rate", levels, rate * times);
                }
            }
            run
        },
    ),
    (
        &[
            "distributed.ikp.construction",
            "distributed.ikp.batch",
            "distributed.ikp.incremental",
            "distributed.ikp.pipelined-incremental",
            "distributed.ikp.polling-is-slow",
        ],
        |holds| {
            let mut run = SyntheticRun::new(1);
            for (mode, workstation, host) in [
                ("construction", 380.0, 380.0),
                ("batch", 190.0, 350.0),
                ("incremental", 29.0, 4.6),
                ("pipelined-incremental", 44.0, 81.0),
            ] {
                let host = if holds { host } else { workstation * workstation / host };
                let host = if holds || mode != "construction" { host } else { 100.0 };
                for (transport, rate) in
                    [("messages", workstation), ("relay-polling", host), ("tcp", 30.0)]
                {
                    let levels = factors(&format!("transport={transport} mode={mode}"));
                    run.measure("display.transport", "rate", levels, rate);
                }
            }
            run
        },
    ),
    (&["distributed.transport.ikp-usually-better"], |holds| {
        let at = |transport: &str| format!("transport={transport} mode=incremental");
        let messages = if holds { 50e3 } else { 30e3 };
        results("display.transport", "rate", &[(&at("messages"), messages), (&at("tcp"), 40e3)])
    }),
    (&["distributed.cpu.speed-follows-processor"], |holds| {
        let at = |speed: &str| format!("place=local workstation={speed} mode=batch");
        let half = if holds { 110.0 } else { 200.0 };
        results("display.cpu", "rate", &[(&at("1x"), 220.0), (&at("0.5x"), half)])
    }),
    (&["distributed.cpu.offloading-needs-faster-hosts"], |holds| {
        let at = |workstation: &str, host: &str| {
            format!("place=lan workstation={workstation} host={host} mode=batch")
        };
        let slow = if holds { 95.0 } else { 30.0 };
        let cells = [
            (at("1x", "1x"), 220.0),
            (at("1x", "0.5x"), 130.0),
            (at("0.25x", "1x"), 100.0),
            (at("0.25x", "0.5x"), slow),
        ];
        results("display.cpu", "rate", &cells.each_ref().map(|(at, rate)| (at.as_str(), *rate)))
    }),
    (&["distributed.rect.structure-needs-few-items"], |holds| {
        let mut run = memory("structured-array", if holds { 900.0 } else { 9_000.0 }, 34_000.0);
        let levels = factors("drawing=array");
        run.measure("display.memory", "display-file", levels, 15_600.0);
        run
    }),
    (&["distributed.vector.polygon-pixels"], |holds| {
        let pixels = if holds { 288_000.0 } else { 260_000.0 };
        results("display.memory", "pixels", &[("drawing=polygon", pixels)])
    }),
    (&["distributed.rect.appear-in-a-few-bytes"], |holds| {
        let bytes = if holds { 40.0 } else { 12_600.0 };
        results("display.vector", "bytes", &[("path=direct mode=display", bytes)])
    }),
    (&["distributed.transport.less-but-noticeable"], |holds| {
        let unix = if holds { 53e3 } else { 38e3 };
        let cells = [
            ("path=unix mode=incremental", unix),
            ("path=tcp mode=incremental", 40e3),
            ("path=tcp mode=pipelined-incremental", 370e3),
        ];
        results("display.rect", "rate", &cells)
    }),
    (&["distributed.sensitivity.rank"], |holds| {
        let mut run = workstations("batch", [210.0, 172.0]);
        let levels = factors("place=lan workstation=1x host=0.5x mode=batch");
        run.measure("display.cpu", "rate", levels, if holds { 150.0 } else { 209.0 });
        add_links(&mut run, "batch", &[("3mbit", 1_300.0), ("56kbit", 500.0)]);
        run
    }),
    (&["distributed.sensitivity.beyond-graphics"], |holds| {
        let mut run = workstations("text", [7_700.0, 6_300.0]);
        let levels = factors("place=lan workstation=1x host=0.5x mode=text");
        run.measure("display.cpu", "rate", levels, if holds { 7_000.0 } else { 3_800.0 });
        run
    }),
    (&["distributed.sensitivity.only-processors-scale"], |holds| {
        let mut run = SyntheticRun::new(1);
        for (speed, rate) in [("1x", 220.0), ("0.5x", 112.0), ("0.25x", 57.0)] {
            let levels = factors(&format!("place=lan workstation={speed} host=1x mode=batch"));
            run.measure("display.cpu", "rate", levels, rate);
        }
        add_links(
            &mut run,
            "batch",
            &[("10mbit", if holds { 1_300.0 } else { 3_000.0 }), ("3mbit", 1_250.0)],
        );
        run
    }),
    (&["distributed.memory.break-even"], |holds| {
        memory("array", if holds { 15_600.0 } else { 45_600.0 }, 34_000.0)
    }),
    (&["distributed.memory.transmitted-as-stored"], |holds| {
        let mut run = memory("polygon", 12_600.0, 80_000.0);
        for (form, bytes) in [("display-file", 900.0), ("bitmap", 34_000.0)] {
            run.measure("display.memory", form, factors("drawing=structured-array"), bytes);
        }
        let sent = if holds { 1_200.0 } else { 15_000.0 };
        let at = factors("path=direct mode=structured");
        run.constant("display.rect", "bytes", at, sent);
        let at = factors("path=direct mode=construction");
        run.constant("display.vector", "bytes", at, 15_000.0);
        run
    }),
];

/// Rates of the four modes, from waiting to structured, by path.
fn display_rect(paths: &[(&str, [f64; 4])]) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    let modes = ["incremental", "pipelined-incremental", "batch", "structured"];
    for (path, rates) in paths {
        for (mode, rate) in modes.into_iter().zip(rates) {
            let levels = factors(&format!("path={path} mode={mode}"));
            run.measure("display.rect", "rate", levels, *rate);
        }
    }
    run
}

/// Rates of a mode over the three paths of slow processors.
fn slow_paths(experiment: &str, mode: &str, rates: [f64; 3]) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (path, rate) in ["slow-local", "slow-lan", "slow-arpanet"].into_iter().zip(rates) {
        run.measure(experiment, "rate", factors(&format!("path={path} mode={mode}")), rate);
    }
    run
}

/// Bytes of a drawing in both forms.
fn memory(drawing: &str, file: f64, bitmap: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (form, bytes) in [("display-file", file), ("bitmap", bitmap)] {
        run.measure("display.memory", form, factors(&format!("drawing={drawing}")), bytes);
    }
    run
}

/// Rates with a workstation of full speed and one of 0.8, over Ethernet.
fn workstations(mode: &str, rates: [f64; 2]) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (speed, rate) in ["1x", "0.8x"].into_iter().zip(rates) {
        let levels = factors(&format!("place=lan workstation={speed} host=1x mode={mode}"));
        run.measure("display.cpu", "rate", levels, rate);
    }
    run
}

/// Rates with a host of full speed and one of half of it.
fn hosts(mode: &str, rates: [f64; 2]) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (speed, rate) in ["1x", "0.5x"].into_iter().zip(rates) {
        let levels = factors(&format!("place=lan workstation=1x host={speed} mode={mode}"));
        run.measure("display.cpu", "rate", levels, rate);
    }
    run
}

/// Rates of a mode over links, between slow processors.
fn add_links(run: &mut SyntheticRun, mode: &str, links: &[(&str, f64)]) {
    for (link, rate) in links {
        let levels = factors(&format!("processors=slow link={link} mode={mode}"));
        run.measure("display.link", "rate", levels, *rate);
    }
}

/// Rates of construction and of batches over four lines and an Ethernet.
fn lines(rates: [f64; 4], ethernet: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for mode in ["construction", "batch"] {
        let links = ["1200bit", "2400bit", "4800bit", "9600bit"];
        let links: Vec<(&str, f64)> = links.into_iter().zip(rates).collect();
        add_links(&mut run, mode, &links);
        add_links(&mut run, mode, &[("10mbit", ethernet)]);
    }
    run
}

/// Dependent round trips of modes over a LAN.
fn round_trips(run: &mut SyntheticRun, modes: [(&str, f64); 2]) {
    for (mode, count) in modes {
        let levels = factors(&format!("path=lan mode={mode}"));
        run.measure("display.rect", "round-trips", levels, count);
    }
}

/// Rates of a mode over two links, between slow processors.
fn display_link(mode: &str, links: [(&str, f64); 2]) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    add_links(&mut run, mode, &links);
    run
}

/// TCP without a defect and with each of them, all alike.
fn defects(at: &str, response: &str, none: f64, each: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for defect in ["none", "timeout-1s", "silly-window", "timeouts-only"] {
        let value = if defect == "none" { none } else { each };
        run.measure("stack.errors", response, factors(&format!("{at} defect={defect}")), value);
    }
    run
}

/// Measured timeouts, and each fixed one, all alike, of an early TCP.
fn timeouts(at: &str, response: &str, dynamic: f64, fixed: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for timeout in ["dynamic", "100ms", "250ms", "1s", "4s"] {
        let value = if timeout == "dynamic" { dynamic } else { fixed };
        let levels = factors(&format!("load=file {at} tcp=early timeout={timeout}"));
        run.measure("stack.timeouts", response, levels, value);
    }
    run
}

fn buffers(path: &str, response: &str, policies: [(&str, f64); 2]) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (policy, value) in policies {
        let levels = factors(&format!("path={path} buffers={policy}"));
        run.measure("stack.buffers", response, levels, value);
    }
    run
}

/// What a workstation gets by a local and by a remote server.
fn remote(levels: &str, [local, remote]: [f64; 2]) -> SyntheticRun {
    let at = |server: &str| format!("server={server} {levels} mainframe=1x connections=1");
    results("stack.remote", "throughput", &[(&at("local"), local), (&at("remote"), remote)])
}

/// Rates of transports in modes, on one CPU.
fn transports(rates: &[(&str, &str, f64)]) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (transport, mode, rate) in rates {
        let levels = format!("transport={transport} mode={mode} placement=same-cpu");
        run.measure("display.transport", "rate", factors(&levels), *rate);
    }
    run
}

/// A file with a measured timeout and with 100 ms, between like hosts and to a slow one.
fn short_timeouts(errors: &str, far: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (path, short) in [("lan", 0.98e6), ("slow-host", far)] {
        for (timeout, rate) in [("dynamic", 1e6), ("100ms", short)] {
            let levels =
                format!("load=file path={path} errors={errors} tcp=early timeout={timeout}");
            run.measure("stack.timeouts", "throughput", factors(&levels), rate);
        }
    }
    run
}
