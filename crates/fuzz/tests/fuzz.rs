//! Mutated frames and random bytes, to every parser and to whole hosts.
//!
//! `PLUMB_FUZZ_FRAMES` sets how many frames each test sends.

use arbitrary::{Arbitrary, Unstructured};
use plumb_base::seed::{RandomStream, Seed};
use plumb_conform::runner;
use plumb_conform::settings::{RunSettings, ScriptSystem};
use plumb_fuzz::display::{FuzzDisplay, check_display};
use plumb_fuzz::host::{FuzzDevice, FuzzHost, HostInput};
use plumb_fuzz::mutator::FrameMutator;
use plumb_fuzz::parsers::{check_capture, check_every_parser, check_frame, check_script};
use plumb_stack::counters::CounterId;
use plumb_wire::capture::{CaptureDirection, LinkType};
use plumb_wire::flow::FiveTuple;
use plumb_wire::packet::PoolConfig;
use plumb_wire::{pcap, pcapng};
use proptest::prelude::*;
use rand::{Rng, RngExt};

fn frames() -> u64 {
    let set = std::env::var("PLUMB_FUZZ_FRAMES").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(1_000_000)
}

#[test]
fn mutated_frames_break_no_parser() {
    let seed = Seed(0x57_1fe5);
    println!("seed {seed:?}");
    let mut mutator = FrameMutator::new(seed);
    let (mut parsed, mut bytes) = (0, Vec::new());
    for index in 0..frames() {
        mutator.next_frame(&mut bytes);
        check_frame(&bytes);
        if index % 16 == 0 {
            check_every_parser(&bytes);
        }
        parsed += u64::from(FiveTuple::of_frame(&bytes).is_some());
    }
    // Frames that all break at their first header would test nothing behind it.
    assert!(parsed > frames() / 4, "{parsed} of {} had a flow", frames());
}

#[test]
fn random_bytes_break_no_parser() {
    let mut stream = Seed(1).stream("bytes");
    let mut bytes = vec![0; 256];
    for round in 0..100_000 {
        stream.fill_bytes(&mut bytes);
        bytes[12..14].copy_from_slice(&[[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]][round % 4]);
        check_every_parser(&bytes[..round % 257]);
    }
}

/// A script with a few bytes, lines or pieces changed.
fn mutated(scripts: &[Vec<u8>], stream: &mut RandomStream) -> Vec<u8> {
    let mut script = scripts[stream.random_range(0..scripts.len())].clone();
    for _ in 0..stream.random_range(1..4) {
        let at = stream.random_range(0..script.len());
        let end = (at + stream.random_range(1..12)).min(script.len());
        match stream.random_range(0..4) {
            0 => script[at] = stream.random_range(b' '..=b'~'),
            1 => drop(script.drain(at..end)),
            2 => {
                let other = &scripts[stream.random_range(0..scripts.len())];
                let from = stream.random_range(0..other.len());
                let piece = &other[from..(from + (end - at)).min(other.len())];
                script.splice(at..end, piece.iter().copied());
            }
            _ => {
                let digit = script.iter().skip(at).position(u8::is_ascii_digit);
                let place = at + digit.unwrap_or(0);
                script[place] = stream.random_range(b'0'..=b'9');
            }
        }
        if script.is_empty() {
            script.push(b'0');
        }
    }
    script
}

#[test]
fn mutated_scripts_break_neither_parser_nor_stack() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../conform/scripts");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let scripts: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let mut stream = Seed(7).stream("scripts");
    let (mut parsed, rounds) = (0, frames() / 20);
    let settings = RunSettings::new(ScriptSystem::Linux);
    for _ in 0..rounds {
        let script = mutated(&scripts, &mut stream);
        if check_script(&script) {
            parsed += 1;
            if parsed % 8 == 0 {
                let _ = runner::run(&String::from_utf8_lossy(&script), &settings, Seed(1));
            }
        }
    }
    assert!(parsed > rounds / 5, "{parsed} of {rounds} were scripts");
}

/// Lets mutated frames arrive at a host; [`FuzzHost::finish`] asserts that no memory is lost.
fn feed(kind: FuzzDevice, seed: u64) {
    let frames = PoolConfig { count: 512, size: 2_048, large: 12 };
    let mut mutator = FrameMutator::new(Seed(seed));
    let mut subject = FuzzHost::new(kind, frames, Seed(seed));
    let mut frame = Vec::new();
    let count = self::frames();
    for n in 1..=count {
        mutator.next_frame(&mut frame);
        subject.feed(&frame);
        if n % 100_000 == 0 {
            subject.check();
        }
    }
    let (fed, sent) = subject.counts();
    assert_eq!(fed, count);
    assert!(sent > count / 100, "frames reach what lies behind the first header");
    let opened = subject.host().counters().value(CounterId::TcpOpened);
    assert!(opened >= count / 2_000, "{opened} connections were opened");
    subject.finish();
}

#[test]
fn host_on_ethernet_survives_mutated_frames() {
    feed(FuzzDevice::Ethernet, 1);
}

#[test]
fn host_without_link_layer_survives_mutated_packets() {
    feed(FuzzDevice::Ip, 2);
}

#[test]
fn host_survives_false_packet_metadata() {
    feed(FuzzDevice::Offloading, 3);
}

#[test]
fn host_survives_random_bytes() {
    let mut stream = Seed(4).stream("bytes");
    for round in 0..300_u16 {
        let mut bytes = vec![0; usize::from(round) * 16];
        stream.fill_bytes(&mut bytes);
        let input = HostInput::arbitrary_take_rest(Unstructured::new(&bytes));
        input.unwrap().feed();
    }
}

#[test]
fn display_survives_arbitrary_messages_within_its_memory() {
    let mut subject = FuzzDisplay::new(Seed(5));
    let messages = frames() / 5;
    for _ in 0..messages {
        subject.feed();
    }
    let counts = subject.finish();
    println!("{counts:?}");
    // Messages that are all refused would test nothing behind the codec, and most refusals happen.
    assert!(counts.items > messages / 4 && counts.frames > messages / 100, "{counts:?}");
    assert!(counts.refused.len() >= 10, "{counts:?}");
}

#[test]
fn display_survives_random_bytes() {
    let mut stream = Seed(6).stream("bytes");
    let mut bytes = [0; 256];
    for round in 0..100_000 {
        stream.fill_bytes(&mut bytes);
        // An opcode that exists, and a length that may be there.
        bytes[0] = 1 + u8::try_from(round % 10).unwrap();
        bytes[5..8].fill(0);
        check_display(&bytes[..round % 257]);
    }
}

proptest! {
    #[test]
    fn no_capture_file_panics_or_loops(file in prop::collection::vec(any::<u8>(), 0..600)) {
        check_capture(&file);
    }

    /// Damages a real capture of either format, so that reading gets somewhere.
    #[test]
    fn damaged_capture_files_break_nothing(
        next_generation in any::<bool>(),
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut file = Vec::new();
        if next_generation {
            pcapng::begin(&mut file, "test");
            pcapng::interface(&mut file, LinkType::ETHERNET, "if", 0);
            for frame in &frames {
                pcapng::packet(&mut file, 0, 1, Some(CaptureDirection::Inbound), frame);
            }
        } else {
            pcap::begin(&mut file, LinkType::ETHERNET);
            for frame in &frames {
                pcap::packet(&mut file, 1, frame);
            }
        }
        prop_assert_eq!(check_capture(&file), frames.len());
        for (at, byte) in &damage {
            let at = at.index(file.len());
            file[at] = *byte;
        }
        let keep = keep.index(file.len() + 1);
        check_capture(&file[..keep]);
    }
}
