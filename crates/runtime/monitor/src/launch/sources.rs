//! Everything that a container's file system is made of, as mounts that nobody sees yet.
//!
//! Made in the service's mount namespace, by the child itself: a source that hangs holds up its own
//! container only. Flags, propagation and ids are set before a mount is put anywhere.

use std::os::fd::{AsFd, OwnedFd};

use ferrolet_runtime_protocol::launch::{
    Device, LaunchSpec, Layers, Mount, Propagation, Readonly, Root, Source,
};
use ferrolet_runtime_sys::mounts::{self, Attributes, Depth};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::failure::{Failure, Step};

/// The parts of a container's file system.
pub(super) struct Sources {
    pub(super) root: OwnedFd,
    /// For each mount of the description, what comes from the node.
    pub(super) mounts: Vec<Option<OwnedFd>>,
    /// For each device, the node's own, where the container may make none.
    pub(super) devices: Vec<Option<OwnedFd>>,
}

pub(super) fn open(spec: &LaunchSpec, user: Option<&OwnedFd>) -> Result<Sources, Failure> {
    let root = spec.root.as_ref().ok_or_else(|| Failure::refused("container without root", ""))?;
    Ok(Sources {
        root: open_root(root, user)?,
        mounts: spec.mounts.iter().map(|it| open_mount(it, user)).collect::<Result<_, _>>()?,
        devices: spec.devices.iter().map(open_device).collect::<Result<_, _>>()?,
    })
}

fn open_root(root: &Root, user: Option<&OwnedFd>) -> Result<OwnedFd, Failure> {
    let user = if root.idmap { user } else { None };
    let mount = if root.upper.is_empty() {
        let path = root.layers.first().map_or("", String::as_str);
        let tree = mounts::detached(CWD, path).step_on("open root", path)?;
        if let Some(user) = user {
            mounts::map_ids(&tree, user, Depth::All).step_on("map ids of", path)?;
        }
        tree
    } else {
        let upper = Some((root.upper.as_str(), root.work.as_str()));
        overlay(&root.layers, upper, user)?
    };
    let attributes =
        Attributes { propagation: propagation(root.propagation()), ..Attributes::default() };
    mounts::set_attributes(&mount, attributes, Depth::All).step("set propagation of root")?;
    Ok(mount)
}

/// An overlay of layers, the uppermost first. What is written is not synced, ever: it does not
/// outlive its container.
fn overlay(
    layers: &[String],
    upper: Option<(&str, &str)>,
    user: Option<&OwnedFd>,
) -> Result<OwnedFd, Failure> {
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)
        .step("open overlay file system")?;
    // A detached mount ends with its descriptor, and the overlay takes its layers only when it is
    // made.
    let mut trees = Vec::with_capacity(layers.len());
    for layer in layers {
        let tree = match user {
            Some(user) => {
                let tree = mounts::detached_top(CWD, layer).step_on("open layer", layer)?;
                mounts::map_ids(&tree, user, Depth::Top).step_on("map ids of layer", layer)?;
                tree
            }
            None => directory(layer).step_on("open layer", layer)?,
        };
        set_layer(&context, "lowerdir+", &tree).step_on("add layer", layer)?;
        trees.push(tree);
    }
    if let Some((upper, work)) = upper {
        for (key, path) in [("upperdir", upper), ("workdir", work)] {
            let place = directory(path).step_on("open layer", path)?;
            set_layer(&context, key, &place).step_on("add layer", path)?;
        }
        rustix::mount::fsconfig_set_flag(&context, "volatile").step("set overlay volatile")?;
    }
    rustix::mount::fsconfig_create(&context).step("make overlay")?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    rustix::mount::fsmount(&context, flags, MountAttrFlags::empty()).step("mount overlay")
}

/// By descriptor, from Linux 6.13; before, by the descriptor's name.
fn set_layer(context: &OwnedFd, key: &str, layer: &OwnedFd) -> rustix::io::Result<()> {
    match rustix::mount::fsconfig_set_fd(context, key, layer) {
        Err(Errno::INVAL) => {
            let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(layer));
            rustix::mount::fsconfig_set_string(context, key, name)
        }
        answer => answer,
    }
}

fn directory(path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

fn open_mount(mount: &Mount, user: Option<&OwnedFd>) -> Result<Option<OwnedFd>, Failure> {
    let user = if mount.idmap { user } else { None };
    let (tree, name) = match &mount.source {
        Some(Source::Path(path)) => {
            (mounts::detached(CWD, path).step_on("open volume", path)?, path.as_str())
        }
        Some(Source::Layers(layers)) => (image(layers, user)?, mount.target.as_str()),
        // Made where it is put.
        Some(Source::Tmpfs(_) | Source::Kernel(_)) => return Ok(None),
        None => return Err(Failure::refused("mount without source", &*mount.target)),
    };
    if let (Some(user), Some(Source::Path(_))) = (user, &mount.source) {
        mounts::map_ids(&tree, user, Depth::All).step_on("map ids of volume", name)?;
    }
    let set = attributes(mount).bits();
    let below = match mount.readonly() {
        Readonly::Recursive => libc::MOUNT_ATTR_RDONLY,
        Readonly::No | Readonly::Yes => 0,
    };
    let all = Attributes {
        set: below,
        propagation: propagation(mount.propagation()),
        ..Attributes::default()
    };
    mounts::set_attributes(&tree, all, Depth::All).step_on("set attributes of volume", name)?;
    let top = Attributes { set: set.into(), ..Attributes::default() };
    mounts::set_attributes(&tree, top, Depth::Top).step_on("set attributes of volume", name)?;
    Ok(Some(tree))
}

/// An image's files, or a directory of them.
fn image(layers: &Layers, user: Option<&OwnedFd>) -> Result<OwnedFd, Failure> {
    // An overlay has two layers or more; a single one is mounted as it is.
    let whole = match layers.layers.as_slice() {
        [single] => {
            let tree = mounts::detached_top(CWD, single).step_on("open layer", single)?;
            if let Some(user) = user {
                mounts::map_ids(&tree, user, Depth::Top).step_on("map ids of layer", single)?;
            }
            tree
        }
        several => overlay(several, None, user)?,
    };
    mounts::make_readonly(&whole).step("make image read-only")?;
    if layers.sub_path.is_empty() {
        return Ok(whole);
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let part = rustix::fs::openat2(&whole, &*layers.sub_path, flags, Mode::empty(), resolve)
        .step_on("find in image", &layers.sub_path)?;
    mounts::detached_top(&part, "").step_on("open in image", &layers.sub_path)
}

fn open_device(device: &Device) -> Result<Option<OwnedFd>, Failure> {
    if device.host_path.is_empty() {
        return Ok(None);
    }
    let path = device.host_path.as_str();
    let tree = mounts::detached_top(CWD, path).step_on("open device", path)?;
    let stat = rustix::fs::fstat(&tree).step_on("open device", path)?;
    let number = rustix::fs::makedev(device.major, device.minor);
    let kind = if device.is_block { FileType::BlockDevice } else { FileType::CharacterDevice };
    if stat.st_rdev != number || FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(Failure::refused("not the device that it should be:", path));
    }
    Ok(Some(tree))
}

/// The attributes of a mount itself.
pub(super) fn attributes(mount: &Mount) -> MountAttrFlags {
    let mut attributes = MountAttrFlags::empty();
    attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, mount.readonly() != Readonly::No);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOSUID, mount.nosuid);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, mount.nodev);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, mount.noexec);
    attributes
}

fn propagation(propagation: Propagation) -> u64 {
    match propagation {
        Propagation::Private => libc::MS_PRIVATE,
        Propagation::HostToContainer => libc::MS_SLAVE,
        Propagation::Bidirectional => libc::MS_SHARED,
    }
}

/// A read-only clone of what a path of the container leads to, put over itself.
pub(super) fn readonly_over(target: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let tree = mounts::detached(target.as_fd(), "")?;
    mounts::make_readonly(&tree)?;
    Ok(tree)
}
