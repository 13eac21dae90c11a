//! Two namespaces with a TAP device in each, for a network between them.
//!
//! Left out: the network.

use crate::device::Wait;
use crate::device::tap::{Offload, Settings, Tap, TapError};
use crate::lab::{LabError, LinkOptions, TestBed};

/// Why there is no such pair.
#[derive(Debug, thiserror::Error)]
pub enum TapsError {
    /// The namespaces.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The devices.
    #[error(transparent)]
    Tap(#[from] TapError),
}

/// Makes both namespaces and opens both TAPs, near and far, as an emulator wants them; they are up and
/// have their addresses.
///
/// # Errors
/// As [`TestBed::taps`] and [`Tap::open`].
pub fn taps(options: LinkOptions) -> Result<(TestBed, [Tap; 2]), TapsError> {
    let bed = TestBed::taps(options)?;
    let settings = Settings {
        wait: Wait::Spin,
        offload: if options.offloads { Offload::Segments } else { Offload::None },
        mtu: Some(options.mtu),
        ..Settings::default()
    };
    let near = bed.in_a(|| Tap::open(TestBed::NEAR_DEVICE, settings))??;
    let far = bed.in_b(|| Tap::open(TestBed::FAR_DEVICE, settings))??;
    bed.bring_up_taps()?;
    Ok((bed, [near, far]))
}
