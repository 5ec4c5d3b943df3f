//! Volumes that somebody else provides, on a real node: the port `NodeMounts`.
//!
//! ```text
//! pods/<uid>/volumes/<plugin>/<name>                 the administrator's directory or device, shown to one pod
//! plugins/kubernetes.io/<kind>/mounts/<name>         a device, mounted once for the node
//! ```
//!
//! Raw devices are the business of [`devices`]. Names of places are ours and reached beneath
//! descriptors; sources are the administrator's and resolved by name, links included, as upstream
//! does. Must never happen: deleting what a volume holds. Directories go by `rmdir` only.

use std::{
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

use ferrolet_linux::{
    offload::{Job, Pool, refused},
    rooted::{Kind, Rooted},
};
use ferrolet_ports::{
    Detached, DeviceMount, Disk, DiskForm, DiskKey, FsGroupChangePolicy, FsGroupOwner, Fut,
    HostError, MountAccess, NodeMounts, ProgramMount, Record, RecordPlace, Records, VolumePlace,
};
use ferrolet_types::PodUid;
use rustix::{
    fs::{Mode, OFlags},
    mount::MountFlags,
};

use super::{
    NodeVolumes, devices,
    disks::{self, LetGo},
    fs_group::{Access, is_given, set_ownership},
    layout::{VOLUMES, plain},
    mounts::{self, NAMED, WhenBusy, mounted_on, open_across, unmount, unmount_all},
    programs, records,
};

const PRIVATE: u32 = 0o750;
pub(super) const ADMINISTRATORS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl NodeVolumes {
    pub(super) fn at_root<'a, T: Send + 'static>(
        &self,
        attempt: String,
        work: impl FnOnce(&Rooted) -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        let root = Arc::clone(&self.root);
        let job = Job::on(Pool::Mounts, &attempt).alone(&*attempt);
        Box::pin(job.run(move || {
            Rooted::open(&root)
                .and_then(|root| work(&root))
                .map_err(|cause| refused(attempt, &cause))
        }))
    }

    /// Hands a raw device to a pod, held in a directory of the caller's choice.
    fn map_held<'a>(
        &'a self,
        place: &'a VolumePlace,
        device: &'a str,
        directory: impl FnOnce(&VolumePlace) -> io::Result<PathBuf> + Send + 'static,
    ) -> Fut<'a, Result<PathBuf, HostError>> {
        let (own, device) = (place.clone(), PathBuf::from(device));
        let attempt = format!("map device {} for volume {}", device.display(), place.name);
        Box::pin(async move {
            let mapped = self
                .at_root(attempt, move |root| devices::map(root, &own, &directory(&own)?, &device));
            let mapped = mapped.await?;
            if mapped.is_to_be_locked {
                programs::lock_device(&mapped.held).await?;
            }
            Ok(self.root.join(devices::link_path(place)))
        })
    }
}

impl NodeMounts for NodeVolumes {
    fn bind<'a>(
        &'a self,
        place: &'a VolumePlace,
        source: &'a str,
        access: MountAccess,
    ) -> Fut<'a, Result<(), HostError>> {
        let (place, source) = (place.clone(), PathBuf::from(source));
        self.at_root(format!("mount {} for volume {}", source.display(), place.name), move |root| {
            let (plugin, name) = make_place(root, &place)?;
            if mounted_on(&plugin, name)?.is_some() {
                return Ok(());
            }
            let source = rustix::fs::open(&source, ADMINISTRATORS, Mode::empty())?;
            let target = open_across(plugin.as_fd(), Path::new(name), NAMED)?;
            mounts::bind(source.as_fd(), target.as_fd())?;
            if access == MountAccess::ReadOnly {
                let made = make_read_only(&plugin, name);
                if made.is_err() {
                    // Never leave it writable: the next try starts anew.
                    unmount(root, &relative(&place)?, WhenBusy::Detach)?;
                }
                made?;
            }
            Ok(())
        })
    }

    fn mount_by_program<'a>(
        &'a self,
        place: &'a VolumePlace,
        ask: &'a ProgramMount,
    ) -> Fut<'a, Result<(), HostError>> {
        Box::pin(async move {
            let (own, wanted) = (place.clone(), format!("make place {}", place.name));
            let is_there = self.at_root(wanted, move |root| {
                let (plugin, name) = make_place(root, &own)?;
                Ok(mounted_on(&plugin, name)?.is_some())
            });
            if is_there.await? {
                return Ok(());
            }
            let target = ferrolet_ports::VolumeFiles::volume_path(self, place);
            let mounted = programs::mount(&ask.kind, &ask.source, &target, &ask.options).await;
            if mounted.is_err() {
                // The first failure is the one to report; an empty directory is no harm.
                self.unmount(place).await.ok();
            }
            mounted
        })
    }

    fn unmount<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        let place = place.clone();
        self.at_root(format!("unmount volume {}", place.name), move |root| {
            let path = relative(&place)?;
            unmount_all(root, &path, WhenBusy::Detach)?;
            root.remove_directory(path)
        })
    }

    fn mount_device<'a>(&'a self, ask: &'a DeviceMount) -> Fut<'a, Result<PathBuf, HostError>> {
        Box::pin(async move {
            let directory = Path::new("plugins").join(&ask.directory);
            let beneath = directory.join(&ask.name);
            let target = self.root.join(&beneath);
            let name = ask.name.clone();
            let wanted = format!("make place for device {}", ask.device);
            let is_there = self.at_root(wanted, move |root| {
                let parent = root.ensure_directory(directory, PRIVATE)?;
                parent.ensure_directory_across(plain(&name)?, PRIVATE)?;
                Ok(mounted_on(&parent, &name)?.is_some())
            });
            if !is_there.await? {
                let mounted = programs::format_and_mount(&self.writers, ask, &target).await;
                if mounted.is_err() {
                    // What is not empty is somebody's.
                    let wanted = format!("remove place for device {}", ask.device);
                    let removed = self.at_root(wanted, move |root| root.remove_directory(beneath));
                    removed.await.ok();
                }
                mounted?;
            }
            Ok(target)
        })
    }

    fn grow_files<'a>(&'a self, device: &'a str, path: &'a str) -> Fut<'a, Result<(), HostError>> {
        Box::pin(programs::grow_files(&self.writers, device, path))
    }

    fn unmount_device<'a>(
        &'a self,
        plugin: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        let (plugin, name) = (plugin.to_owned(), name.to_owned());
        self.at_root(format!("unmount device of volume {name}"), move |root| {
            let path = mounts_of(&plugin).join(plain(&name)?);
            if shown_to_pods(root, &plugin.replace('/', "~"), &name)? {
                return Ok(());
            }
            unmount_all(root, &path, WhenBusy::Refuse)?;
            root.remove_directory(path)
        })
    }

    fn attach_disk<'a>(
        &'a self,
        disk: &'a Disk,
        form: DiskForm,
    ) -> Fut<'a, Result<String, HostError>> {
        Box::pin(async move {
            let own = disk.clone();
            let attempt = format!("make place for disk {}", disk.key().name);
            self.at_root(attempt, move |root| disks::note(root, &own, form)).await?;
            disks::attach(disk).await
        })
    }

    fn unused_disks(&self) -> Fut<'_, Result<Vec<DiskKey>, HostError>> {
        self.at_root("find disks that nobody has".to_owned(), disks::unused)
    }

    fn known_disks(&self) -> Fut<'_, Result<Vec<DiskKey>, HostError>> {
        self.at_root("list disks of other machines".to_owned(), disks::known)
    }

    fn detach_disk<'a>(&'a self, disk: &'a DiskKey) -> Fut<'a, Result<Detached, HostError>> {
        Box::pin(async move {
            let (own, attempt) = (disk.clone(), format!("let disk {} go", disk.name));
            let left = self.at_root(attempt.clone(), move |root| disks::let_go(root, &own));
            let left = match left.await? {
                LetGo::Used => return Ok(Detached::Used),
                LetGo::Gone => return Ok(Detached::Gone),
                LetGo::Left(left) => left,
            };
            disks::detach(&left).await?;
            self.at_root(attempt, move |root| disks::forget(root, &left)).await?;
            Ok(Detached::Gone)
        })
    }

    fn map_disk<'a>(
        &'a self,
        place: &'a VolumePlace,
        disk: &'a Disk,
        device: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>> {
        let own = disk.clone();
        self.map_held(place, device, move |_| disks::raw_directory(&own))
    }

    fn map_device<'a>(
        &'a self,
        place: &'a VolumePlace,
        device: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>> {
        self.map_held(place, device, |place| Ok(devices::held_directory(place)))
    }

    fn let_go_device<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        let attempt = format!("let device of volume {} go", place.name);
        Box::pin(async move {
            let own = place.clone();
            let locks = self.at_root(attempt.clone(), move |root| devices::locks(root, &own));
            for lock in locks.await? {
                programs::unlock_device(&lock).await?;
            }
            let own = place.clone();
            self.at_root(attempt, move |root| devices::let_go(root, &own)).await
        })
    }

    fn unmap_device<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        Box::pin(async move {
            self.let_go_device(place).await?;
            let own = place.clone();
            let attempt = format!("unmap device of volume {}", place.name);
            self.at_root(attempt, move |root| devices::unmap(root, &own)).await
        })
    }

    fn driver_device(&self, place: &VolumePlace) -> PathBuf {
        self.root.join(devices::published_path(place))
    }

    fn announce_device<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        let (own, target) = (place.clone(), self.driver_device(place));
        self.at_root(format!("make place for device of volume {}", place.name), move |root| {
            devices::announce(root, &own, &target)
        })
    }

    fn device_users<'a>(
        &'a self,
        plugin: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Vec<PodUid>, HostError>> {
        let (plugin, name) = (plugin.to_owned(), name.to_owned());
        self.at_root(format!("find users of device {name}"), move |root| {
            devices::users(root, &plugin, &name)
        })
    }

    /// Without a deadline: a large volume takes its time. Whoever waits can tell how far it is by
    /// `walked`.
    fn set_ownership<'a>(
        &'a self,
        path: &'a str,
        owner: FsGroupOwner,
        walked: Arc<AtomicU64>,
    ) -> Fut<'a, Result<(), HostError>> {
        let path = PathBuf::from(path);
        let attempt = format!("give {} to group {}", path.display(), owner.group);
        // A caller who went away leaves his walk behind: the next one waits for it instead of
        // walking beside it.
        let job = Job::on(Pool::Walks, &attempt).alone(path.display().to_string());
        Box::pin(job.without_deadline().run(move || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let give = || {
                let volume = Rooted::from(rustix::fs::open(&path, flags, Mode::empty())?);
                if owner.policy == FsGroupChangePolicy::OnRootMismatch
                    && is_given(&volume, owner.group)?
                {
                    return Ok(());
                }
                set_ownership(&volume, owner.group, Access::ReadWrite, &walked)
            };
            give().map_err(|cause: io::Error| refused(attempt, &cause))
        }))
    }

    fn driver_path(&self, place: &RecordPlace) -> PathBuf {
        self.root.join(records::mount_path(place))
    }

    fn save_record<'a>(
        &'a self,
        place: &'a RecordPlace,
        record: &'a Record,
    ) -> Fut<'a, Result<(), HostError>> {
        let (place, record) = (place.clone(), record.clone());
        self.at_root("save the record of a volume".to_owned(), move |root| {
            records::save(root, &place, &record)
        })
    }

    fn remove_record<'a>(&'a self, place: &'a RecordPlace) -> Fut<'a, Result<(), HostError>> {
        let place = place.clone();
        self.at_root("remove the record of a volume".to_owned(), move |root| {
            records::remove(root, &place)
        })
    }

    fn records(&self) -> Fut<'_, Result<Records, HostError>> {
        self.at_root("list the records of volumes".to_owned(), records::all)
    }

    fn is_mounted<'a>(&'a self, place: &'a RecordPlace) -> Fut<'a, Result<bool, HostError>> {
        let place = place.clone();
        self.at_root("look at the mount of a volume".to_owned(), move |root| {
            records::is_mounted(root, &place)
        })
    }
}

/// Where devices of a plugin are mounted for the node.
fn mounts_of(plugin: &str) -> PathBuf {
    Path::new("plugins").join(plugin).join("mounts")
}

fn relative(place: &VolumePlace) -> io::Result<PathBuf> {
    Ok(Path::new("pods").join(super::layout::relative(place)?))
}

/// Makes the directory that something is mounted on; answers with its parent and name.
fn make_place<'a>(root: &Rooted, place: &'a VolumePlace) -> io::Result<(Rooted, &'a str)> {
    let volumes: PathBuf = ["pods", plain(place.uid.as_str())?, VOLUMES].iter().collect();
    let plugin = root
        .ensure_directory(volumes, PRIVATE)?
        .ensure_directory(plain(&place.plugin)?, PRIVATE)?;
    let name = plain(&place.name)?;
    plugin.ensure_directory_across(name, PRIVATE)?;
    Ok((plugin, name))
}

fn make_read_only(plugin: &Rooted, name: &str) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // Opened anew: the descriptor from before names what is covered now.
    let top = open_across(plugin.as_fd(), Path::new(name), NAMED)?;
    let path = format!("/proc/self/fd/{}", top.as_raw_fd());
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    Ok(rustix::mount::mount_remount(path, flags, "")?)
}

/// True when some pod still has the volume in its directory.
fn shown_to_pods(root: &Rooted, plugin: &str, name: &str) -> io::Result<bool> {
    let pods = match root.directory("pods") {
        Ok(pods) => pods,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(cause),
    };
    for pod in pods.entries()? {
        let place = Path::new(&pod.name).join(VOLUMES).join(plugin).join(name);
        if pod.kind == Kind::Directory && pods.kind(place)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
