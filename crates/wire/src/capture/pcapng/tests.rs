//! Tests of the next generation of capture files.

use proptest::prelude::*;

use super::*;

fn direction() -> impl Strategy<Value = Option<CaptureDirection>> {
    prop::option::of(prop_oneof![Just(CaptureDirection::Inbound), Just(CaptureDirection::Outbound)])
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        packets in prop::collection::vec(
            (0..2_u32, any::<u64>(), direction(), prop::collection::vec(any::<u8>(), 0..80)),
            0..10,
        ),
    ) {
        let mut file = Vec::new();
        begin(&mut file, "plumb");
        interface(&mut file, LinkType::ETHERNET, "tap0", 0);
        interface(&mut file, LinkType::RAW, "a longer name", 65_535);
        for (index, time_ns, direction, bytes) in &packets {
            packet(&mut file, *index, *time_ns, *direction, bytes);
        }
        let records: Result<Vec<_>, _> = PcapngReader::new(&file).unwrap().collect();
        let records = records.unwrap();
        prop_assert_eq!(records.len(), packets.len());
        for (record, (index, time_ns, direction, bytes)) in records.iter().zip(&packets) {
            let link_type = if *index == 0 { LinkType::ETHERNET } else { LinkType::RAW };
            let original_len = u32::try_from(bytes.len()).unwrap();
            let expected = CapturedPacket {
                time_ns: *time_ns,
                bytes,
                original_len,
                link_type,
                direction: *direction,
            };
            prop_assert_eq!(*record, expected);
        }
    }
}

/// A block as a machine of either byte order writes it.
fn foreign(order: ByteOrder, kind: u32, body: &[u8]) -> Vec<u8> {
    let number = |value: u32| match order {
        ByteOrder::Little => value.to_le_bytes(),
        ByteOrder::Big => value.to_be_bytes(),
    };
    let len = number(u32::try_from(body.len()).unwrap() + 12);
    [&number(kind)[..], &len, body, &len].concat()
}

/// A big-endian section: an interface with units of 2^-10 s and an offset, one packet of each kind,
/// and a block that nobody knows.
fn big_endian() -> Vec<u8> {
    let order = ByteOrder::Big;
    let section = [0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
    let interface = [
        0, 1, 0, 0, 0, 0, 0, 2, // Ethernet, two bytes kept
        0, 9, 0, 1, 0x8a, 0, 0, 0, // if_tsresol
        0, 14, 0, 8, 0, 0, 0, 0, 0, 0, 0, 100, // if_tsoffset
        0, 0, 0, 0,
    ];
    let old = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 2, 0, 0, 0, 60, 0xab, 0xcd, 0, 0];
    let simple = [0, 0, 0, 9, 0x12, 0x34, 0, 0];
    let enhanced = [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0x77, 0, 0, 0, //
        0, 2, 0, 4, 0, 0, 0, 2, // epb_flags: outbound
        0, 0, 0, 0,
    ];
    [
        foreign(order, SECTION, &section),
        foreign(order, INTERFACE, &interface),
        foreign(order, PACKET_OLD, &old),
        foreign(order, 0x0bad, &[1, 2, 3, 4]),
        foreign(order, PACKET_SIMPLE, &simple),
        foreign(order, PACKET_ENHANCED, &enhanced),
    ]
    .concat()
}

#[test]
fn every_kind_of_packet_is_read_in_the_other_byte_order_and_other_units_of_time() {
    let file = big_endian();
    let records: Result<Vec<_>, _> = PcapngReader::new(&file).unwrap().collect();
    let records = records.unwrap();
    assert_eq!(records.len(), 3);
    assert_eq!((records[0].bytes, records[0].original_len), (&[0xab, 0xcd][..], 60));
    assert_eq!(records[0].time_ns, 102_000_000_000);
    assert_eq!((records[1].bytes, records[1].original_len), (&[0x12, 0x34][..], 9));
    assert_eq!(records[2].time_ns, 101_000_000_000);
    assert_eq!(records[2].direction, Some(CaptureDirection::Outbound));
}

#[test]
fn a_second_section_of_the_other_byte_order_has_interfaces_of_its_own() {
    let mut file = big_endian();
    begin(&mut file, "plumb");
    let alone = file.len();
    packet(&mut file, 0, 1, None, b"x");
    let error = PcapngReader::new(&file).unwrap().last().unwrap().unwrap_err();
    assert!(error.to_string().contains("no known interface"), "{error}");
    file.truncate(alone);
    interface(&mut file, LinkType::RAW, "tun0", 0);
    packet(&mut file, 0, 1, None, b"x");
    let last = PcapngReader::new(&file).unwrap().last().unwrap().unwrap();
    assert_eq!((last.link_type, last.bytes), (LinkType::RAW, &b"x"[..]));
}

#[test]
fn a_file_that_is_cut_off_gives_what_is_whole_and_says_where_it_ends() {
    let file = big_endian();
    let read: Vec<_> = PcapngReader::new(&file[..file.len() - 1]).unwrap().collect();
    assert_eq!(read.len(), 3);
    assert!(read[..2].iter().all(Result::is_ok));
    let error = read[2].as_ref().unwrap_err();
    assert!(matches!(error, CaptureError::Truncated { missing: 1, .. }), "{error}");
}

#[test]
fn damage_is_named_with_its_place() {
    let said = |file: &[u8]| match PcapngReader::new(file) {
        Err(error) => error.to_string(),
        Ok(reader) => reader.last().unwrap().unwrap_err().to_string(),
    };
    let mut file = big_endian();
    file[8] = 0;
    assert_eq!(said(&file), "damaged at byte 0: a section of no known byte order");
    let mut file = big_endian();
    file[13] = 2;
    assert_eq!(said(&file), "this is pcapng of version 2.0, which is not known here");
    let mut file = big_endian();
    let last = file.len() - 1;
    file[last] = 0;
    assert!(said(&file).ends_with("a block whose two lengths differ"), "{}", said(&file));
    let mut file = big_endian();
    file[28 + 7] = 3;
    assert_eq!(said(&file), "damaged at byte 28: a block of impossible length");
}
