//! The arguments of `quarry conformance`.

use std::path::PathBuf;

use clap::Args;

use super::{Assignment, key_value};
use crate::config::units::Span;
use crate::conformance::Group;

pub(super) const CONFORMANCE_EXAMPLES: &str = "\
The component is a guest that does what tests/conformance/README.md says: it runs the suite's scripts. Each case has a node of its own in
this process. The table goes to standard output, progress to standard error. What the guest leaves out is `absent`, and no failure unless
--strict says so. The figures are measured in turns, in one run.

Exit codes: 0 every case passed (with --turned: none), 1 a case failed, 2 wrong arguments, 130 interrupted.

Examples:
  quarry conformance guest.wasm
  quarry conformance guest.wasm --only database --only scans
  quarry conformance guest.wasm --case \"memory over\" --no-figures
  quarry conformance guest.wasm --against reference.wasm --json";

/// Arguments of `quarry conformance`.
#[derive(Debug, Args)]
pub struct Conformance {
    /// The component, or the project of one that was built
    #[arg(value_name = "FILE|DIR")]
    pub target: PathBuf,
    /// Only the cases of this group; may be given several times
    #[arg(long, value_name = "GROUP", value_enum)]
    pub only: Vec<Group>,
    /// Only cases whose title (`group: name`) has this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub case: Vec<String>,
    /// An option for the guest in every case; the value is JSON, or else text
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value)]
    pub option: Vec<Assignment>,
    /// How long a case may take
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub timeout: Span,
    /// Let a case fail that needs what the guest leaves out
    #[arg(long)]
    pub strict: bool,
    /// Turn each thing that the cases expect into its opposite, one at a time: every run has to fail, or the suite does not look at what this
    /// guest does
    #[arg(long, conflicts_with_all = ["against", "strict"])]
    pub turned: bool,
    /// List the cases and run none
    #[arg(long)]
    pub list: bool,
    /// Measure this guest as well, side by side; may be given several times
    #[arg(long, value_name = "FILE")]
    pub against: Vec<PathBuf>,
    /// Measure nothing
    #[arg(long, conflicts_with = "against")]
    pub no_figures: bool,
}
