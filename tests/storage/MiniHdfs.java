// A NameNode and a DataNode in one JVM, until standard input is closed. Prints the URL of the file system.

import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

public class MiniHdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setBoolean("dfs.permissions.enabled", false);
        settings.setBoolean("dfs.namenode.edits.noeditlogchannelflush", true);
        MiniDFSCluster cluster =
            new MiniDFSCluster.Builder(settings, new File(arguments[0])).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("hdfs://127.0.0.1:" + cluster.getNameNodePort());
        System.out.flush();
        while (System.in.read() >= 0) {
        }
        cluster.shutdown();
        System.exit(0);
    }
}
