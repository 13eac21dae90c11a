//! `host.mtu`: what longer packets spare a host, with and without devices that cut segments.
//!
//! Over a virtual Ethernet, whose packets are handled as a card's are but for the interrupt. Left out: what
//! becomes of long packets on a path that does not fit them (`super::mtu_path`).

use plumb_base::units::Unit;
use plumb_host::harness::spec::{DeviceOptions, PathSpec, Wire};
use plumb_host::local::mechanism::Wake;
use plumb_store::record::Better;

use super::bulk::{self, APART, CONTROL, RECEIVER_CPU, SENDER_CPU, STREAMED};
use super::factor::{Domain, Factor, Reader, always, keep, numbers, words};
use super::{Experiment, Form, Response, local, path};
use crate::plan::Preset;

/// Throughput and the cost of a packet against its size.
pub static HOST_MTU: Experiment = Experiment {
    id: "host.mtu",
    study: "gigabit",
    question: "What does a packet cost a host, and what do longer ones spare it?",
    hypothesis: "A packet costs almost the same whatever its length, so that longer ones carry more \
                 until copying bounds them; where devices cut segments themselves the size of a packet \
                 matters little.",
    factors: &[
        MTU,
        Factor {
            name: "segmentation",
            meaning: "whether the devices take segments of many packets at once (TSO and GSO)",
            domain: Domain::Words(&["off", "on"]),
            levels: |_| words(&["off", "on"]),
            applies: always,
            fit: keep,
        },
        APART,
        CONTROL,
    ],
    responses: &[
        STREAMED,
        Response {
            name: "packets",
            unit: Unit::Count,
            better: Better::Higher,
            meaning: "packets a second that the receiver's device counts",
        },
        Response {
            name: "packet-cpu",
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            meaning: "CPU time of both hosts for each of these packets",
        },
        SENDER_CPU,
        RECEIVER_CPU,
    ],
    form: |setting| {
        if let Err(exclusion) = path::as_devices_are("set the MTU with 'ip link set DEVICE mtu N'")
        {
            return Form::Excluded(exclusion);
        }
        let mtu = bulk::number(setting.factors, MTU.name);
        let cuts = setting.factors.text("segmentation") == Some("on");
        let path = PathSpec {
            name: format!("veth of {mtu}{}", if cuts { ", cutting" } else { "" }),
            wire: Wire::Veth,
            mtu,
            round_trip_ns: 0,
            rate: None,
            device: DeviceOptions { segmentation: Some(cuts), coalescing: Some(false) },
        };
        bulk::form(local::place(setting, Wake::Block), Ok(bulk::spec(setting, Some(path))))
    },
};

/// The least that every host must take whole (RFC 791).
const MTU_MIN: u64 = 576;
/// The most that a packet's length can say (RFC 791).
const MTU_MAX: u64 = 65_535;

const MTU: Factor = Factor {
    name: "mtu",
    meaning: "longest packet, in bytes",
    domain: Domain::Read(&Reader {
        parse: |text| bulk::whole(text, MTU_MIN, MTU_MAX).map(Into::into),
        describe: || format!("a number of bytes from {MTU_MIN} to {MTU_MAX}"),
    }),
    levels: |preset| match preset {
        Preset::Quick => numbers(&[576, 1_500, 9_000, 65_535]),
        Preset::Default => numbers(&[576, 1_500, 4_352, 9_000, 16_000, 65_535]),
        Preset::Paper => {
            numbers(&[576, 1_006, 1_500, 2_048, 4_352, 6_000, 9_000, 16_000, 32_000, 65_535])
        }
    },
    applies: always,
    fit: keep,
};
