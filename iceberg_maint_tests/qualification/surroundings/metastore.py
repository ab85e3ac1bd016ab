"""Hive Metastore 3.1.3 on a loopback port, on Derby, with the tables of its locks.

    python -m iceberg_maint_tests.qualification.surroundings.metastore PORT FOLDER JAVA CLASSPATH

Its own main listens on all interfaces. Here Python makes the server of the metastore's parts over py4j. The metastore
makes a folder for each database and table. Of a location on S3 it makes the folder below FOLDER instead, because it
has no client of S3: Iceberg's clients read and write there without it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from iceberg_maint_tests.qualification.surroundings.stores import BUCKET

MEMORY = "-Xmx384m"
_SITE = {
    "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
    "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
    "metastore.schema.verification": "false",
    "datanucleus.schema.autoCreateAll": "true",
    "hadoop.tmp.dir": "{home}/tmp",
    "metastore.warehouse.dir": "file://{home}/folders",
    "javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName={home}/derby;create=true",
    # Folders only.
    "fs.s3.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
    "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    f"fs.viewfs.mounttable.{BUCKET}.linkFallback": "file://{home}/folders",
}


def main(port: str, home: str, java: str, classpath: str) -> None:
    """Serves until the process ends."""
    options = [MEMORY, f"-Dderby.system.home={home}", f"-Dderby.stream.error.file={home}/derby.log"]
    launched = launch_gateway(
        java_path=java,
        classpath=classpath,
        jarpath=next(p for p in classpath.split(":") if Path(p).name.startswith("py4j-")),
        javaopts=options,
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=launched, auto_field=True))
    _serve(gateway, int(port), Path(home))


def _serve(gateway: Any, port: int, home: Path) -> None:
    jvm = gateway.jvm
    metastore = jvm.org.apache.hadoop.hive.metastore
    conf = metastore.conf.MetastoreConf.newMetastoreConf()
    for key, value in _SITE.items():
        conf.set(key, value.format(home=home))
    metastore.txn.TxnDbUtil.setConfValues(conf)
    metastore.txn.TxnDbUtil.prepDb(conf)
    base = getattr(metastore, "HiveMetaStore$HMSHandler")("hms", conf)
    handler = metastore.RetryingHMSHandler.getProxy(conf, base, False)
    thrift = jvm.org.apache.thrift
    address = jvm.java.net.InetSocketAddress("127.0.0.1", port)
    arguments = getattr(thrift.server, "TThreadPoolServer$Args")(thrift.transport.TServerSocket(address))
    arguments.processor(metastore.TSetIpAddressProcessor(handler))
    arguments.transportFactory(thrift.transport.TTransportFactory())
    arguments.protocolFactory(getattr(thrift.protocol, "TBinaryProtocol$Factory")())
    sys.stdout.write("serves\n")
    sys.stdout.flush()
    thrift.server.TThreadPoolServer(arguments).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
